//! The offer, the grant, and what may be said after it.

use bytes::BytesMut;
use felix_wire::extension::{Extension, Extensions};
use felix_wire::message::{
    Auth, AuthOk, NotLeader, ShardMoved, StreamDeleted, SubscriptionLagged, Unsupported,
};
use felix_wire::negotiate::NotWelcome;
use felix_wire::{
    Ack, AckForm, Code, Ending, EventForm, Failure, Features, Flags, Grant, Message, Offer, Served,
    Welcome,
};

use crate::support::all_extensions;

fn everything() -> Served {
    Served {
        flags: Flags::ALL,
        features: Features::ALL,
        publish_window: 256,
        listener_ports: Vec::new(),
        extensions: all_extensions(),
    }
}

fn auth(flags: Option<u16>, first: Option<u32>, second: Option<u32>) -> Auth {
    Auth {
        tenant_id: "t1".to_owned(),
        token: "tok".to_owned(),
        client_flags: flags,
        client_features: first,
        client_features_hi: second,
        extensions: Vec::new(),
    }
}

fn shipped() -> Offer {
    Offer::of(&auth(Some(8191), Some(4_218_945_535), Some(31)))
}

fn granted(served: &Served, offer: &Offer) -> AuthOk {
    let Message::AuthOk(granted) = served.grant(offer).answer else {
        panic!("no grant")
    };
    granted
}

#[test]
fn a_shipped_client_is_granted_all_but_what_it_did_not_ask_for() {
    let Grant { answer, peer } = everything().grant(&shipped());
    // All of the first word but ACK_ON_COMMIT and GROUP_PUBLISHER, which only an option asks for.
    assert_eq!(
        answer.encode()[12..],
        br#"{"type":"auth_ok","server_flags":32767,"server_features":4286054399,"server_features_hi":31,"publish_window":256}"#[..]
    );
    assert_eq!(peer.flags, Flags::from_bits(8191));
    assert_eq!(peer.publish_window, Some(256));
    assert_eq!(peer.event_form(), EventForm::Shared);
    assert!(peer.has(Features::ERROR_CODES | Features::REDIRECT | Features::STREAM_DELETED));
    assert!(!peer.has(Features::GROUP_PUBLISHER));
}

#[test]
fn a_client_that_asks_for_everything_gets_the_full_mask() {
    let offer = Offer::of(&auth(Some(32767), Some(u32::MAX), Some(31)));
    let granted = granted(&everything(), &offer);
    assert_eq!(granted.server_features, Some(u32::MAX));
    assert_eq!(granted.server_features_hi, Some(31));
}

#[test]
fn what_is_not_served_is_not_granted() {
    let mut served = everything();
    served.features = Features::TOPOLOGY | Features::ERROR_CODES | Features::INSPECT;
    served.flags = Flags::ORIGINAL;
    let answer = granted(&served, &shipped());
    assert_eq!(answer.server_flags, 7);
    assert_eq!(answer.server_features, Some(0x8000_0801));
    assert_eq!(answer.server_features_hi, Some(1));
    assert_eq!(answer.publish_window, None);
    let peer = served.grant(&shipped()).peer;
    assert_eq!(peer.features, served.features);
    assert_eq!(peer.flags, Flags::ORIGINAL);
}

#[test]
fn a_client_without_flags_gets_plain_ok_and_the_original_layouts() {
    let offer = Offer::of(&auth(None, None, None));
    let Grant { answer, peer } = everything().grant(&offer);
    assert_eq!(answer, Message::Ok);
    assert_eq!(peer.flags, Flags::ORIGINAL);
    assert_eq!(peer.features, Features::NONE);
    assert_eq!(peer.publish_window, None);
    assert_eq!(peer.extensions, Extensions::NONE);
}

#[test]
fn a_client_without_flags_may_still_say_that_it_reads_codes() {
    let offer = Offer::of(&auth(None, Some(0x0800), None));
    assert!(everything().grant(&offer).peer.has(Features::ERROR_CODES));
}

#[test]
fn the_second_word_counts_only_with_its_marker() {
    assert_eq!(Features::from_words(Some(1), Some(31)), Features::TOPOLOGY);
    let both = Features::from_words(Some(0x8000_0001), Some(1));
    assert_eq!(both, Features::TOPOLOGY | Features::INSPECT);
    assert_eq!(
        Features::from_words(Some(0x8000_0000), None),
        Features::NONE
    );
    assert_eq!(
        Features::from_words(Some(0x8000_0000), Some(u32::MAX))
            .words(true)
            .1,
        Some(31)
    );
}

#[test]
fn the_second_word_is_told_only_to_a_client_that_set_the_marker() {
    let without = Offer::of(&auth(Some(8191), Some(0x7fff_ffff), Some(31)));
    let answer = granted(&everything(), &without);
    assert_eq!(answer.server_features, Some(0x7fff_ffff));
    assert_eq!(answer.server_features_hi, None);
    let empty = Offer::of(&auth(Some(8191), Some(0x8000_0000), None));
    assert_eq!(
        granted(&everything(), &empty).server_features_hi,
        Some(0x1d)
    );
}

#[test]
fn the_marker_is_not_set_when_there_is_no_second_word() {
    let mut served = everything();
    served.features = Features::FIRST_WORD;
    let answer = granted(&served, &shipped());
    assert_eq!(answer.server_features.map(|word| word >> 31), Some(0));
    assert_eq!(answer.server_features_hi, None);
}

#[test]
fn a_window_is_granted_only_to_a_client_that_pipelines_and_by_a_broker_that_has_one() {
    let without = Offer::of(&auth(Some(8191), Some(0x0800), None));
    let answer = granted(&everything(), &without);
    assert_eq!(answer.publish_window, None);
    assert_eq!(
        answer.server_features.map(|word| word & 0x0002_8000),
        Some(0)
    );
    let served = Served {
        publish_window: 0,
        ..everything()
    };
    let answer = granted(&served, &shipped());
    assert_eq!(answer.publish_window, None);
    assert_eq!(
        answer.server_features.map(|word| word & 0x0002_8000),
        Some(0)
    );
}

#[test]
fn unknown_bits_of_an_offer_are_not_carried_on() {
    let offer = Offer::of(&auth(Some(u16::MAX), Some(u32::MAX), Some(u32::MAX)));
    assert_eq!(offer.flags, Some(Flags::ALL));
    assert_eq!(offer.features, Features::ALL);
}

#[test]
fn an_offer_is_read_as_it_was_made() {
    let offer = Offer {
        flags: Some(Flags::ALL),
        features: Features::ALL,
        reads_second_word: true,
        extensions: all_extensions(),
    };
    let auth = offer.auth("t1", "tok");
    assert_eq!(auth.extensions, all_extensions().names());
    assert_eq!(Offer::of(&auth), offer);
    let old = Offer {
        flags: None,
        features: Features::NONE,
        reads_second_word: false,
        extensions: Extensions::NONE,
    };
    assert_eq!(
        Message::from(old.auth("t1", "tok")).encode()[12..],
        br#"{"type":"auth","tenant_id":"t1","token":"tok"}"#[..]
    );
}

#[test]
fn an_extension_is_granted_to_whoever_asks_if_it_is_served() {
    let asks = Offer {
        extensions: all_extensions(),
        ..shipped()
    };
    let Grant { answer, peer } = everything().grant(&asks);
    assert!(peer.extensions.contains(Extension::Records));
    assert!(
        Welcome::read(answer)
            .unwrap()
            .extensions
            .contains(Extension::Records)
    );
    let served = Served {
        extensions: Extensions::NONE,
        ..everything()
    };
    assert!(served.grant(&asks).peer.extensions.is_empty());
    assert!(everything().grant(&shipped()).peer.extensions.is_empty());
}

#[test]
fn a_client_reads_what_it_was_granted() {
    let welcome = Welcome::read(everything().grant(&shipped()).answer).unwrap();
    assert_eq!(welcome.flags, Flags::ALL);
    assert_eq!(welcome.publish_window, Some(256));
    assert!(welcome.features.contains(Features::PUBLISH_WIDTH));
    let plain = Welcome::read(Message::Ok).unwrap();
    assert_eq!(plain.flags, Flags::ORIGINAL);
    assert_eq!(plain.features, Features::NONE);
    let refusal = Failure::new(Code::Draining, "bye");
    assert_eq!(
        Welcome::read(refusal.clone().into()),
        Err(NotWelcome::Refused(refusal))
    );
    let other = Welcome::read(Message::Topology);
    assert_eq!(
        other,
        Err(NotWelcome::Unexpected {
            received: "topology".to_owned()
        })
    );
}

#[test]
fn a_window_without_its_feature_is_not_counted() {
    let text = br#"{"type":"auth_ok","server_flags":7,"publish_window":256}"#;
    let welcome = Welcome::read(Message::decode(text).unwrap()).unwrap();
    assert_eq!(welcome.publish_window, None);
}

#[test]
fn codes_go_only_to_clients_that_read_them() {
    let failure = Failure::new(Code::Forbidden, "no").with_reason("r");
    let reads = shipped().peer();
    assert_eq!(reads.failure(failure.clone()), failure);
    let old = Offer::of(&auth(None, None, None)).peer();
    assert_eq!(old.error(failure), Message::Error(Failure::uncoded("no")));
}

#[test]
fn a_client_that_does_not_read_redirects_gets_an_error() {
    let to = NotLeader {
        node_id: "node-2".to_owned(),
        addr: None,
        generation: 4,
    };
    assert_eq!(
        shipped().peer().redirect(to.clone()),
        Message::NotLeader(to.clone())
    );
    let codes = Offer::of(&auth(Some(7), Some(0x0800), None)).peer();
    let Message::Error(failure) = codes.redirect(to) else {
        panic!("no error")
    };
    assert_eq!(failure.code(), Some(Code::NotLeader));
}

#[test]
fn a_subscription_ends_in_words_its_client_reads() {
    let moved = ShardMoved {
        subscription_id: 1,
        resume_from: None,
        node_id: None,
        addr: None,
        generation: 5,
    };
    let lagged = SubscriptionLagged {
        subscription_id: 1,
        resume_from: 4,
    };
    let deleted = StreamDeleted { subscription_id: 1 };
    let endings = [
        Ending::Moved(moved),
        Ending::Lagged(lagged.clone()),
        Ending::Deleted(deleted),
    ];
    let reads = shipped().peer();
    let old = Offer::of(&auth(None, None, None)).peer();
    for ending in endings {
        assert!(reads.ending(ending.clone()).is_some());
        assert_eq!(old.ending(ending), None);
    }
    let no_offsets = Offer::of(&auth(Some(0x0004), Some(0x0020_0000), None)).peer();
    assert_eq!(no_offsets.ending(Ending::Lagged(lagged)), None);
    let failed = old.ending(Ending::Failed(Failure::new(Code::Revoked, "revoked")));
    assert_eq!(failed, Some(Message::Error(Failure::uncoded("revoked"))));
}

#[test]
fn a_client_that_does_not_read_unsupported_is_not_told() {
    let answer = Unsupported {
        request_type: "zzz".to_owned(),
        extension: None,
        request_id: Some(4),
    };
    assert!(shipped().peer().unsupported(answer.clone()).is_some());
    assert_eq!(
        Offer::of(&auth(Some(7), None, None))
            .peer()
            .unsupported(answer),
        None
    );
}

#[test]
fn the_form_of_events_follows_the_offer() {
    let form = |flags| {
        Offer::of(&auth(Some(flags), None, None))
            .peer()
            .event_form()
    };
    assert_eq!(form(0x0004), EventForm::Shared);
    assert_eq!(form(0x0006), EventForm::Shared);
    assert_eq!(form(0x0002), EventForm::PerSubscription);
    assert_eq!(form(0x0019), EventForm::Json);
}

#[test]
fn an_offset_in_json_needs_the_flag_of_the_binary_one() {
    let ack = Ack {
        request_id: 1,
        outcome: Ok(Some(4)),
        owner: None,
    };
    let answer = |flags| {
        let mut buffer = BytesMut::new();
        let peer = Offer::of(&auth(Some(flags), None, None)).peer();
        peer.ack_into(ack.clone(), AckForm::Json, &mut buffer);
        buffer.split_off(12)
    };
    assert_eq!(
        answer(0x1000),
        br#"{"type":"publish_ok","request_id":1,"offset":4}"#[..]
    );
    assert_eq!(
        answer(0x0fff),
        br#"{"type":"publish_ok","request_id":1}"#[..]
    );
}

#[test]
fn a_failed_json_publish_is_answered_in_terms_the_client_reads() {
    let failure = Failure::new(Code::Forbidden, "no");
    let ack = Ack {
        request_id: 1,
        outcome: Err(failure),
        owner: None,
    };
    let mut buffer = BytesMut::new();
    Offer::of(&auth(Some(7), None, None))
        .peer()
        .ack_into(ack, AckForm::Json, &mut buffer);
    assert_eq!(
        buffer[12..],
        br#"{"type":"publish_error","request_id":1,"message":"no"}"#[..]
    );
}

#[test]
fn an_answer_has_the_form_of_its_request() {
    let publish = Flags::PUBLISH | Flags::PUBLISH_ACKED;
    assert_eq!(AckForm::of(publish), AckForm::Binary);
    assert_eq!(AckForm::of(publish | Flags::PUBLISH_KEYED), AckForm::Binary);
    assert_eq!(
        AckForm::of(publish | Flags::PUBLISH_IDEMPOTENT),
        AckForm::Json
    );
    assert_eq!(AckForm::of(Flags::NONE), AckForm::Json);
}
