//! What is bounded, and who has to wait for whom.

use bytes::Bytes;
use felix_engine::groups::{Answer, Ask, Poll, Ticket, Verb, carried_bytes, limits};
use felix_model::Offset;

use super::world::{World, holder, name, poll, settle};

fn records(answer: Answer) -> Vec<(Offset, u32)> {
    let Answer::Records(deliveries) = answer else {
        panic!("{answer:?}");
    };
    let told = deliveries.iter();
    told.map(|delivery| (delivery.record.offset, delivery.attempts))
        .collect()
}

fn patient(group: &str, max_records: u32, wait_ms: u64) -> Ask {
    Ask::Poll(Poll {
        wait_ms,
        visibility_ms: limits::VISIBILITY_MS_MAX,
        record_bytes_max: 12 << 20,
        ..poll(group, holder(1, None), max_records)
    })
}

fn answered(world: &mut World, ticket: Ticket) -> Option<Vec<(Offset, u32)>> {
    world.settle();
    world.taken(ticket).map(records)
}

/// Takes so many records for a group, none of which is finished.
fn hoard(world: &mut World, group: &str, count: usize) -> usize {
    let mut got = 0;
    while got < count {
        let more = records(world.asked(patient(group, 1_000, 0))).len();
        if more == 0 {
            break;
        }
        got += more;
    }
    got
}

#[test]
fn headers_count_against_the_bytes_of_a_poll_new_and_again() {
    let mut world = World::usual();
    let header = vec![7; 3 << 19];
    for _ in 0..5 {
        world.publish_with(&[(b"h", Some(&header))], &[b"x"]);
    }
    let Answer::Records(first) = world.asked(patient("g", 10, 0)) else {
        panic!("no records");
    };
    let bytes: usize = first.iter().map(|new| carried_bytes(&new.record)).sum();
    assert_eq!(first.len(), 2);
    assert!(bytes <= limits::POLL_BYTES_MAX);
    let items: Vec<(u64, u32)> = first.iter().map(|new| (new.record.offset.0, 0)).collect();
    world.asked(settle("g", Verb::Nack { delay_ms: 0 }, &items));
    // Both are owed, and no third fits beside them.
    let again = records(world.asked(patient("g", 10, 0)));
    assert_eq!(again, vec![(Offset(0), 2), (Offset(1), 2)]);
}

#[test]
fn a_new_record_that_does_not_fit_beside_owed_ones_comes_with_the_next_poll() {
    let mut world = World::usual();
    let large = vec![7; 5 << 20];
    for _ in 0..2 {
        world.publish(0, &[&large]);
    }
    let all = || {
        Ask::Poll(Poll {
            record_bytes_max: 16 << 20,
            ..poll("g", holder(1, None), 10)
        })
    };
    assert_eq!(records(world.asked(all())), vec![(Offset(0), 1)]);
    world.asked(settle("g", Verb::Nack { delay_ms: 0 }, &[(0, 0)]));
    assert_eq!(records(world.asked(all())), vec![(Offset(0), 2)]);
    assert_eq!(records(world.asked(all())), vec![(Offset(1), 1)]);
}

#[test]
fn a_page_of_dead_letters_ends_before_its_headers_are_too_long() {
    let mut world = World::usual();
    let header = vec![7; 3 << 19];
    for _ in 0..3 {
        world.publish_with(&[(b"h", Some(&header))], &[b"x"]);
    }
    for offset in 0..3 {
        world.asked(patient("g", 1, 0));
        world.asked(settle("g", Verb::Bury { reason: None }, &[(offset, 0)]));
    }
    let page = |after| Ask::Letters {
        group: name("g"),
        after,
        limit: 10,
        payloads: true,
    };
    let mut listed = |after| {
        let Answer::Letters { letters, more } = world.asked(page(after)) else {
            panic!("no letters");
        };
        (letters.len(), more)
    };
    assert_eq!(listed(None), (2, true));
    assert_eq!(listed(Some(Offset(1))), (1, false));
}

#[test]
fn a_group_that_finishes_nothing_leaves_half_of_the_claims_to_the_others() {
    let mut world = World::usual();
    let payloads: Vec<Bytes> = (0..12_000).map(|_| Bytes::from_static(b"x")).collect();
    let payloads: Vec<&[u8]> = payloads.iter().map(AsRef::as_ref).collect();
    for some in payloads.chunks(1_000) {
        world.publish(0, some);
    }
    assert_eq!(
        hoard(&mut world, "a", 12_000),
        limits::GROUP_CLAIMS_MAX,
        "a group has its share"
    );
    assert_eq!(hoard(&mut world, "b", 12_000), limits::GROUP_CLAIMS_MAX);
    // The shard is full. A third group waits, and so does one that has its share.
    let third = world.ask(patient("c", 10, 30_000));
    let own = world.ask(patient("a", 10, 30_000));
    assert_eq!(answered(&mut world, third), None);
    // What a group finishes goes to who waits, not only to itself.
    world.asked(settle("a", Verb::Ack, &[(0, 0), (1, 0)]));
    let got = answered(&mut world, third).expect("there is room");
    assert_eq!(got, vec![(Offset(0), 1), (Offset(1), 1)]);
    assert_eq!(answered(&mut world, own), None);
    world.asked(settle("b", Verb::Ack, &[(0, 0)]));
    assert_eq!(answered(&mut world, own).map(|got| got.len()), Some(1));
}

#[test]
fn a_poll_whose_time_is_over_while_its_record_is_read_is_answered() {
    for seek in [false, true] {
        let mut world = World::usual();
        world.publish(0, &[b"a"]);
        world.asked(patient("g", 1, 0));
        world.asked(settle("g", Verb::Nack { delay_ms: 0 }, &[(0, 0)]));
        let ticket = world.ask(patient("g", 1, 500));
        // Its record is being read.
        assert_eq!(world.inbox.len(), 1);
        world.now = 500;
        world.turn(felix_engine::groups::Input::Timeout);
        if seek {
            let to = felix_engine::groups::SeekTo::Latest;
            let (group, if_new) = (name("g"), false);
            world.ask(Ask::Seek { group, to, if_new });
        } else {
            // Somebody else finishes it meanwhile.
            world.ask(settle("g", Verb::Ack, &[(0, 0)]));
        }
        assert_eq!(answered(&mut world, ticket), Some(vec![]), "seek: {seek}");
    }
}

#[test]
fn a_record_that_is_read_for_an_older_connection_goes_to_the_newer_one() {
    let mut world = World::usual();
    world.publish(0, &[b"a"]);
    world.asked(patient("g", 1, 0));
    world.asked(settle("g", Verb::Nack { delay_ms: 0 }, &[(0, 0)]));
    let from = |connection, reclaim| {
        Ask::Poll(Poll {
            wait_ms: 1_000,
            reclaim,
            ..poll("g", holder(connection, Some("w")), 1)
        })
    };
    let older = world.ask(from(1, false));
    let newer = world.ask(from(2, true));
    assert_eq!(answered(&mut world, older), Some(vec![]));
    assert_eq!(answered(&mut world, newer), Some(vec![(Offset(0), 2)]));
}
