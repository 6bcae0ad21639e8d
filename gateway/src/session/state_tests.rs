use super::super::message::Begin;
use super::*;
use crate::metrics::Limited;

const SCOPE: &str = r#"
    allow_throttle = true
    [scope]
    field = "board"
    [[scope.streams]]
    alias = "edits"
    name = "board-{scope}-edits"
    actions = ["publish", "subscribe"]
    max_payload_bytes = 8
    [[scope.streams]]
    alias = "news"
    name = "board-{scope}-news"
    actions = ["subscribe"]
    [[scope.caches]]
    alias = "presence"
    name = "board-{scope}-presence"
    actions = ["read", "write", "watch"]
    [[scope.counters]]
    alias = "seq"
    name = "board-{scope}-seq"
    actions = ["add"]
    [limits.session]
    writes_per_s = 2
    write_burst = 3
"#;

struct Talk {
    session: Session,
    people: People,
}

impl Talk {
    fn with(features: &[&str]) -> Self {
        let scope = Arc::new(Scope::parse(SCOPE).unwrap());
        let features: Vec<String> = features.iter().map(|&name| name.to_owned()).collect();
        let rights = Rights {
            publish: vec![true, false],
            subscribe: vec![true, true],
            read: vec![true],
            write: vec![true],
            watch: vec![true],
            add: vec![true],
        };
        let people = People::new(&scope.limits);
        let features = Features::agree(&features, true).0;
        let page = features
            .has(Feature::IdempotentPublish)
            .then(|| Page::new("ann", "tab"));
        let who = "ann".into();
        let session = Session::new(scope, features, who, rights, page, Duration::ZERO);
        Self { session, people }
    }

    fn say(&mut self, text: &str) -> Vec<Effect> {
        self.session
            .hear(Message::read(text), Duration::ZERO, &self.people)
    }

    fn say_at(&mut self, text: &str, now: Duration) -> Vec<Effect> {
        self.session.hear(Message::read(text), now, &self.people)
    }

    fn fault(&mut self, text: &str) -> Fault {
        match self.say(text).pop() {
            Some(Effect::Tell(fault) | Effect::Limited(_, fault)) => fault,
            other => panic!("{text}: {other:?}"),
        }
    }
}

fn publish(id: u64) -> String {
    format!(r#"{{"type":"publish","stream":"edits","payload":"aGk=","ack":false,"id":{id}}}"#)
}

#[test]
fn what_is_begun_over_and_over_is_refused_and_may_be_begun_again_later() {
    for (features, text, code) in [
        (
            &[][..],
            r#"{"type":"subscribe","stream":"edits","from":"live"}"#,
            Code::SubscribeFailed,
        ),
        (
            &["rate_limited"],
            r#"{"type":"subscribe","stream":"edits","from":0}"#,
            Code::RateLimited,
        ),
        (
            &[],
            r#"{"type":"cache_watch","cache":"presence"}"#,
            Code::WatchFailed,
        ),
    ] {
        let mut talk = Talk::with(features);
        for _ in 0..BEGINS_BURST {
            let effects = talk.say(text);
            assert!(
                matches!(effects[..], [Effect::Subscribe(_) | Effect::Watch(_)]),
                "{effects:?}"
            );
        }
        let fault = talk.fault(text);
        assert_eq!(fault.code, code);
        assert_eq!(fault.retry_after_ms.is_some(), code == Code::RateLimited);
        assert!(fault.stream.is_some() != fault.cache.is_some());
        let later = talk.say_at(text, Duration::from_secs(1));
        assert!(!matches!(later[..], [Effect::Limited(..)]), "{later:?}");
    }
}

#[test]
fn a_publish_that_may_be_repeated_goes_alone_and_one_without_the_feature_has_no_number() {
    let text = r#"{"type":"publish","stream":"edits","payload":"","ack":true,"id":1,"seq":4}"#;
    for (features, repeats) in [(&["idempotent_publish"][..], true), (&[], false)] {
        let mut talk = Talk::with(features);
        assert!(talk.say(text).is_empty() && talk.say(text).is_empty());
        let Some(Write::Publish { once, .. }) = talk.session.writes.next() else {
            panic!("a publish");
        };
        assert_eq!(once.is_some(), repeats);
        assert_eq!(once, repeats.then(|| Page::new("ann", "tab").once(4)));
        assert_eq!(talk.session.writes.next().is_none(), repeats);
    }
}

#[test]
fn one_newer_sign_in_is_judged_at_a_time() {
    let mut talk = Talk::with(&["refresh"]);
    let text = r#"{"type":"refresh","token":"t"}"#;
    assert!(matches!(talk.say(text)[..], [Effect::Refresh(_)]));
    assert_eq!(talk.fault(text).code, Code::BadRequest);
    talk.session.refreshed();
    assert!(matches!(talk.say(text)[..], [Effect::Refresh(_)]));
}

#[test]
fn unknown_names_and_forbidden_actions_are_bad_requests_with_their_id() {
    let mut talk = Talk::with(&[]);
    for text in [
        r#"{"type":"publish","stream":"x","payload":"","ack":true,"id":5}"#,
        r#"{"type":"publish","stream":"news","payload":"","ack":true,"id":5}"#,
        r#"{"type":"counter_add","counter":"x","key":"a","delta":1,"id":5}"#,
        r#"{"type":"counter_add","counter":"seq","key":"a b","delta":1,"id":5}"#,
        r#"{"type":"cache_get","cache":"x","key":"a","id":5}"#,
    ] {
        let fault = talk.fault(text);
        assert_eq!(
            (fault.code, fault.id),
            (Code::BadRequest, Some(5)),
            "{text}"
        );
    }
    let fault = talk.fault(r#"{"type":"cache_put","cache":"presence","key":"","payload":""}"#);
    assert_eq!(
        (fault.code, fault.cache.as_deref()),
        (Code::BadRequest, Some("presence"))
    );
    let fault = talk.fault(r#"{"type":"subscribe","stream":"x","from":"live"}"#);
    assert_eq!(
        (fault.code, fault.stream.as_deref()),
        (Code::BadRequest, Some("x"))
    );
}

#[test]
fn a_payload_over_its_streams_limit_is_a_bad_request_and_counted() {
    let mut talk = Talk::with(&["rate_limited"]);
    let text = r#"{"type":"publish","stream":"edits","payload":"MTIzNDU2Nzg5","ack":true,"id":1}"#;
    let effects = talk.say(text);
    let [Effect::Limited(Limited::MessageSize, fault)] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!((fault.code, fault.id), (Code::BadRequest, Some(1)));
}

#[test]
fn a_write_over_the_rate_fails_with_its_own_code_or_with_the_features() {
    for (features, code) in [
        (&[][..], Code::PublishFailed),
        (&["rate_limited"], Code::RateLimited),
    ] {
        let mut talk = Talk::with(features);
        for id in 0..3 {
            assert!(talk.say(&publish(id)).is_empty());
        }
        let fault = talk.fault(&publish(9));
        assert_eq!((fault.code, fault.id), (code, Some(9)));
        assert_eq!(fault.retry_after_ms.is_some(), code == Code::RateLimited);
        let put = r#"{"type":"cache_put","cache":"presence","key":"a","payload":""}"#;
        assert_eq!(talk.fault(put).cache.as_deref(), Some("presence"));
    }
}

#[test]
fn what_was_not_agreed_on_is_unsupported() {
    let mut talk = Talk::with(&[]);
    for text in [
        r#"{"type":"read","stream":"edits","from":0,"id":5}"#,
        r#"{"type":"state_get","stream":"edits","key":"a","id":5}"#,
        r#"{"type":"offset_for_time","stream":"edits","at_us":0,"id":5}"#,
        r#"{"type":"cache_delete_if","cache":"presence","key":"a","version":1,"id":5}"#,
        r#"{"type":"subscribe","stream":"edits","from":0,"slot":"a"}"#,
        r#"{"type":"subscribe","stream":"edits","from":0,"shard":1}"#,
        r#"{"type":"subscribe","streams":[{"stream":"edits","from":0}]}"#,
        r#"{"type":"refresh","token":"t"}"#,
        r#"{"type":"sign_out"}"#,
    ] {
        assert_eq!(talk.fault(text).code, Code::Unsupported, "{text}");
    }
    let mut frame = vec![2, 32];
    frame.resize(32, 0);
    let heard = talk.session.hear(
        Message::read_binary(frame.into()),
        Duration::ZERO,
        &talk.people,
    );
    assert!(matches!(&heard[..], [Effect::Tell(fault)] if fault.code == Code::Unsupported));
}

#[test]
fn several_subscriptions_are_answered_each_in_order() {
    let mut talk = Talk::with(&["resume"]);
    let effects = talk.say(
        r#"{"type":"subscribe","streams":[{"stream":"news","from":7},{"stream":"x","from":0},{"stream":"edits","from":"live"}]}"#,
    );
    let [
        Effect::Subscribe(news),
        Effect::Tell(unknown),
        Effect::Subscribe(edits),
    ] = &effects[..]
    else {
        panic!("{effects:?}");
    };
    assert_eq!((news.stream, news.sub, news.from), (1, 1, Begin::Offset(7)));
    assert_eq!(unknown.stream.as_deref(), Some("x"));
    assert_eq!((edits.stream, edits.sub), (0, 0));
}

#[test]
fn slots_have_numbers_of_their_own_and_keep_them() {
    let mut talk = Talk::with(&["slots"]);
    let mut sub = |slot: &str| {
        let text = format!(r#"{{"type":"subscribe","stream":"edits","from":0,"slot":"{slot}"}}"#);
        match talk.say(&text).pop() {
            Some(Effect::Subscribe(subscribe)) => subscribe.sub,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((sub("a"), sub("b"), sub("a")), (2, 3, 2));
}

#[test]
fn a_fifth_read_fails_while_four_wait() {
    let mut talk = Talk::with(&["read"]);
    let read = r#"{"type":"read","stream":"edits","from":0,"id":5}"#;
    for _ in 0..4 {
        assert!(matches!(talk.say(read)[..], [Effect::Ask(_)]));
    }
    assert_eq!(talk.fault(read).code, Code::ReadFailed);
    talk.session.answered(true);
    assert!(matches!(talk.say(read)[..], [Effect::Ask(_)]));
}

#[test]
fn throttle_takes_a_number_or_null() {
    let mut talk = Talk::with(&[]);
    let effects = talk.say(r#"{"type":"throttle","bits_per_second":8000}"#);
    assert_eq!(effects, [Effect::Throttle(Some(8000.0))]);
    let effects = talk.say(r#"{"type":"throttle","bits_per_second":null}"#);
    assert_eq!(effects, [Effect::Throttle(None)]);
    let fault = talk.fault(r#"{"type":"throttle","bits_per_second":0}"#);
    assert_eq!(fault.code, Code::BadRequest);
}
