"""Publishing and subscribing."""

from __future__ import annotations

import struct

from browser import b64, unb64

from .front import assert_alive, check, delete_records, publish, World


@check
def a_publish_is_acknowledged_with_its_offset_when_asked(world: World) -> None:
    with world.join(world.board()) as browser:
        for number in range(3):
            browser.say("publish", stream="edits", payload=b64(b"%d" % number), ack=True, id=number)
            assert browser.hear() == {"type": "ack", "id": number, "offset": number}
        browser.say("publish", stream="edits", payload=b64(b"quiet"), ack=False, id=9)
        browser.say("publish", stream="cursors", payload=b64(b"here"), ack=True, id=10)
        assert browser.hear() == {"type": "ack", "id": 10, "offset": None}


@check
def acks_of_many_publishes_come_in_order(world: World) -> None:
    with world.join(world.board()) as browser:
        for number in range(200):
            browser.say("publish", stream="edits", payload=b64(b"x"), ack=True, id=number)
        assert [browser.hear()["id"] for _ in range(200)] == list(range(200))


@check
def writes_reach_the_broker_in_the_order_sent(world: World) -> None:
    with world.join(world.board()) as browser:
        browser.say("publish", stream="edits", payload=b64(b"1"), ack=True, id=1)
        browser.say("counter_add", counter="seq", key="n", delta=1, id=2)
        browser.say("cache_put", cache="presence", key="k", payload=b64(b"a"))
        browser.say("cache_put", cache="presence", key="k", payload=b64(b"b"))
        browser.say("publish", stream="edits", payload=b64(b"2"), ack=True, id=3)
        answers = [(message["type"], message["id"]) for message in (browser.hear() for _ in range(3))]
        assert answers == [("ack", 1), ("counter", 2), ("ack", 3)]
        browser.say("cache_get", cache="presence", key="k", id=4)
        assert browser.hear()["payload"] == b64(b"b")


@check
def a_live_subscription_begins_with_what_comes_and_equal_offsets(world: World) -> None:
    board = world.board()
    with world.join(board) as writer, world.join(board, "bob") as reader:
        publish(writer, b"before", 1)
        reader.say("subscribe", stream="edits", **{"from": "live"})
        assert reader.hear() == {"type": "subscribed", "stream": "edits", "start_offset": 1, "live_offset": 1}
        publish(writer, b"after", 2)
        assert reader.hear() == {"type": "event", "stream": "edits", "offset": 1, "payload": b64(b"after")}


@check
def a_subscription_from_an_offset_reads_history_and_goes_on(world: World) -> None:
    board = world.board()
    with world.join(board) as writer, world.join(board, "bob") as reader, world.join(board, "eve") as early:
        early.say("subscribe", stream="edits", **{"from": "live"})
        early.expect("subscribed")
        for number in range(50):
            publish(writer, b"%d" % number, number)
        reader.say("subscribe", stream="edits", **{"from": 10})
        assert reader.hear() == {"type": "subscribed", "stream": "edits", "start_offset": 10, "live_offset": 50}
        for number in range(50, 100):
            publish(writer, b"%d" % number, number)
        assert [event["offset"] for event in reader.events(90)] == list(range(10, 100))
        assert [event["offset"] for event in early.events(100)] == list(range(100))


@check
def a_second_subscribe_replaces_the_first(world: World) -> None:
    with world.join(world.board()) as browser:
        publish(browser, b"0", 0)
        publish(browser, b"1", 1)
        browser.say("subscribe", stream="edits", **{"from": 0})
        browser.expect("subscribed")
        browser.events(2)
        browser.say("subscribe", stream="edits", **{"from": 1})
        assert browser.expect("subscribed")["start_offset"] == 1
        assert browser.expect("event")["offset"] == 1
        publish(browser, b"2", 2)
        assert browser.expect("event")["offset"] == 2
        assert_alive(browser)
        assert not [message for message in browser.kept if message["type"] == "event"], "each event comes once"


@check
def a_subscribe_that_is_replaced_before_it_was_answered_fails_and_the_second_goes_on(world: World) -> None:
    with world.join(world.board(), features=("resume",)) as browser:
        publish(browser, b"0", 0)
        browser.say("subscribe", streams=[{"stream": "edits", "from": "live"}, {"stream": "edits", "from": 0}])
        first = browser.expect("error", stream="edits")
        assert first["code"] == "subscribe_failed", first
        assert browser.expect("subscribed", stream="edits")["start_offset"] == 0
        assert browser.expect("event")["offset"] == 0
        assert_alive(browser)
        assert not [message for message in browser.kept if message["type"] in ("error", "subscribed")], "each is answered once"


@check
def a_stream_without_a_log_has_no_offsets_and_stamps_its_senders(world: World) -> None:
    board = world.board()
    with world.join(board, features=("principal",)) as writer, world.join(board, "bob") as reader:
        reader.say("subscribe", stream="cursors", **{"from": "live"})
        assert reader.hear() == {"type": "subscribed", "stream": "cursors", "start_offset": None, "live_offset": None}
        writer.say("publish", stream="cursors", payload=b64(b"\x01\x02"), ack=True, id=1)
        writer.expect("ack")
        event = reader.hear()
        assert event["offset"] is None
        principal = writer.hello["principal"].encode()
        assert unb64(event["payload"]) == struct.pack(">H", len(principal)) + principal + b"\x01\x02"


@check
def a_subscription_that_cannot_be_fails_with_its_code(world: World) -> None:
    board = world.board(but=("news",))
    with world.join(board) as browser:
        browser.say("subscribe", stream="news", **{"from": "live"})
        browser.error("subscribe_failed", stream="news")
        browser.say("subscribe", stream="edits", **{"from": 1000})
        browser.error("subscribe_failed", stream="edits")
        browser.say("subscribe", stream="edits", **{"from": "earliest"})
        browser.error("bad_request")
        browser.say("subscribe", stream="secret", **{"from": "live"})
        browser.error("bad_request", stream="secret")
    with world.join(board, features=("past_end",)) as browser:
        browser.say("subscribe", stream="edits", **{"from": 1000})
        assert browser.error("past_end", stream="edits")["tail"] == 0


@check
def a_deleted_stream_ends_its_subscription(world: World) -> None:
    board = world.board()
    with world.join(board) as browser:
        browser.say("subscribe", stream="edits", **{"from": "live"})
        browser.expect("subscribed")
        world.node.delete_stream(f"board-{board}-edits")
        browser.error("subscription_ended", stream="edits")
        assert_alive(browser)


@check
def a_publish_that_fails_at_the_broker_is_told(world: World) -> None:
    board = world.board(but=("edits",))
    with world.join(board) as browser:
        browser.say("publish", stream="edits", payload="", ack=True, id=7)
        browser.error("publish_failed", id=7)


@check
def offsets_that_are_gone_are_trimmed_with_the_oldest(world: World) -> None:
    board = world.board()
    with world.join(board, features=("read",)) as browser:
        for number in range(3):
            publish(browser, b"x", number)
        delete_records(world, f"board-{board}-edits", before=2)
        browser.say("subscribe", stream="edits", **{"from": 0})
        assert browser.error("trimmed", stream="edits")["oldest"] == 2
        browser.say("read", stream="edits", **{"from": 0}, id=5)
        assert browser.error("trimmed", id=5)["oldest"] == 2
