"""What is agreed on beyond version 1."""

from __future__ import annotations

import time

import felix
from browser import Browser, b64, unb64

from .front import assert_alive, check, Gateway, gateway, publish, World


@check
def binary_carries_events_and_publishes_without_base64(world: World) -> None:
    board = world.board()
    with world.join(board, features=("binary",)) as writer, world.join(board, "bob", ("binary",)) as reader:
        assert writer.hello["streams"][:2] == ["edits", "cursors"]
        reader.say("subscribe", stream="edits", **{"from": "live"})
        sub = reader.expect("subscribed")["sub"]
        writer.publish_binary(0, b"\x00\xff raw", ack=True, id=77)
        assert writer.expect("ack") == {"type": "ack", "id": 77, "offset": 0}
        event = reader.expect("event")
        assert event["binary"] and event["sub"] == sub and event["offset"] == 0
        assert unb64(event["payload"]) == b"\x00\xff raw"
        assert abs(event["time"] / 1e6 - time.time()) < 60
        writer.publish_binary(99, b"", ack=True, id=78)
        writer.error("bad_request", id=78)
        writer.say("publish", stream="edits", payload=b64(b"text"), ack=True, id=79)
        writer.expect("ack", id=79)


@check
def binary_events_have_the_published_header(world: World) -> None:
    board = world.board()
    with world.join(board, features=("binary_events",)) as browser:
        browser.say("subscribe", stream="edits", **{"from": "live"})
        sub = browser.expect("subscribed")["sub"]
        publish(browser, b"hi", 1)
        event = browser.expect("event")
        assert event["binary"] and event["sub"] == sub and "handed" in event
        assert 0 < event["received"] <= event["handed"]


@check
def resume_answers_every_subscription_of_one_message_in_order(world: World) -> None:
    board = world.board(but=("news",))
    with world.join(board, features=("resume",)) as browser:
        for number in range(3):
            publish(browser, b"%d" % number, number)
        wanted = [{"stream": "edits", "from": 2}, {"stream": "nowhere", "from": 0}, {"stream": "cursors", "from": "live"}]
        browser.say("subscribe", streams=wanted)
        browser.error("bad_request", stream="nowhere")
        assert browser.expect("subscribed", stream="edits")["start_offset"] == 2
        browser.expect("subscribed", stream="cursors")
        assert browser.expect("event", stream="edits")["offset"] == 2


@check
def slots_hold_several_subscriptions_to_one_stream(world: World) -> None:
    with world.join(world.board(), features=("slots",)) as browser:
        for number in range(3):
            publish(browser, b"%d" % number, number)
        for slot, start in (("a", 0), ("b", 2)):
            browser.say("subscribe", stream="edits", slot=slot, **{"from": start})
            assert browser.expect("subscribed", slot=slot)["start_offset"] == start
        assert [event["offset"] for event in browser.events(3, slot="a")] == [0, 1, 2]
        assert [event["offset"] for event in browser.events(1, slot="b")] == [2]


@check
def shards_are_read_by_number(world: World) -> None:
    board = world.board(but=("edits",))
    world.node.create_stream(name=f"board-{board}-edits", shards=2)
    with world.join(board, features=("shards",)) as browser:
        browser.say("subscribe", stream="edits", shard=1, **{"from": "live"})
        assert browser.expect("subscribed")["shard"] == 1
        browser.say("subscribe", stream="edits", shard=7, **{"from": "live"})
        assert browser.error("subscribe_failed")["shard"] == 7


@check
def pages_and_times_of_the_log_can_be_asked_for(world: World) -> None:
    before = int(time.time() * 1e6) - 60_000_000
    with world.join(world.board(), features=("read", "time")) as browser:
        for number in range(5):
            publish(browser, b"%d" % number, number)
        browser.say("read", stream="edits", **{"from": 1}, end=4, id=10)
        page = browser.expect("records", id=10)
        assert [(record["offset"], unb64(record["payload"])) for record in page["records"]] == [
            (1, b"1"), (2, b"2"), (3, b"3"),
        ]
        assert page["next_offset"] == 4
        browser.say("read", stream="edits", **{"from": 0}, max=2, id=11)
        assert len(browser.expect("records", id=11)["records"]) == 2
        browser.say("read", stream="edits", **{"from": 99}, id=12)
        browser.error("read_failed", id=12)
        browser.say("offset_for_time", stream="edits", at_us=before, id=13)
        assert browser.expect("offset", id=13)["offset"] == 0
        browser.say("offset_for_time", stream="edits", at_us=before + 10**15, id=14)
        assert browser.expect("offset", id=14)["offset"] is None


@check
def the_state_of_a_stream_can_be_asked_for(world: World) -> None:
    with world.join(world.board(), features=("state",)) as browser:
        browser.say("state_get", stream="edits", key="k", entity="e", id=1)
        value = browser.expect("state_value", id=1)
        assert value["payload"] is None and value["version"] is None
        assert value["as_of"] is None
        browser.say("state_get", stream="edits", key="a b", id=2)
        browser.error("bad_request", id=2)


@check
def the_state_of_a_stream_says_as_of_which_commit_it_is(world: World) -> None:
    board = world.board()
    stream, op = f"board-{board}-edits", felix.CommitOp
    with felix.Client(
        world.node.brokers,
        tenant_id=world.node.tenant,
        token=world.node.token,
        server_name=world.node.server_name,
        ca_file=world.node.ca_file,
    ) as client:
        for number in range(2):
            ops = [op.publish(stream, b"x"), op.put(stream, f"k{number}", b"%d" % number)]
            client.commit(world.node.tenant, "default", b"e", ops)
    with world.join(board, features=("state",)) as browser:
        browser.say("state_get", stream="edits", key="k0", entity="e", id=1)
        value = browser.expect("state_value", id=1)
        assert (unb64(value["payload"]), value["version"], value["as_of"]) == (b"0", 0, 1), value
        browser.say("state_get", stream="edits", key="none", entity="e", id=2)
        assert browser.expect("state_value", id=2)["as_of"] == 1


@check
def a_publish_with_a_number_lands_once_however_often_and_wherever_it_is_sent(world: World) -> None:
    board = world.board()
    named = {"features": ["idempotent_publish"], "session": "tab-1"}

    def joined(person: str, at: Gateway | None = None, **more) -> Browser:
        browser = Browser((at or world.gateway).address)
        browser.say("join", board=board, token=world.token(person), **{**named, **more})
        browser.hello = browser.expect("hello")
        return browser

    def send(browser: Browser, seq: int, payload: bytes) -> int:
        browser.say("publish", stream="edits", payload=b64(payload), ack=True, id=seq, seq=seq)
        return browser.expect("ack", id=seq)["offset"]

    with gateway(world) as another, joined("ann") as first:
        assert first.hello["features"] == ["idempotent_publish"]
        assert [send(first, seq, b"%d" % seq) for seq in range(3)] == [0, 1, 2]
        assert send(first, 1, b"1") == 1
        # Another connection, another gateway: the same page.
        with joined("ann", another) as again, joined("bob") as other, joined("ann", session="tab-2") as tab:
            assert [send(again, seq, b"%d" % seq) for seq in (2, 3)] == [2, 3]
            assert [send(other, 2, b"b"), send(tab, 2, b"t")] == [4, 5]
            again.say("publish", stream="cursors", payload=b64(b"x"), ack=True, id=9, seq=9)
            again.error("publish_failed", id=9)
            again.say("publish", stream="edits", payload=b64(b"plain"), ack=True, id=10)
            assert again.expect("ack", id=10)["offset"] == 6
        first.say("subscribe", stream="edits", **{"from": 0})
        assert [unb64(event["payload"]) for event in first.events(7)] == [b"0", b"1", b"2", b"3", b"b", b"t", b"plain"]
    with world.join(board, features=("idempotent_publish",)) as nameless:
        assert nameless.hello["features"] == [], "a page without a name cannot repeat itself"
    error, _ = world.refused(board=board, token=world.token(), session="a b")
    assert error["code"] == "bad_request"


@check
def a_session_goes_on_with_a_newer_sign_in_and_ends_when_it_is_signed_out(world: World) -> None:
    with world.join(world.board(), features=("refresh",)) as browser:
        assert browser.hello["expires_in_ms"] > 0
        browser.say("refresh", token=world.token())
        assert browser.expect("refreshed")["expires_in_ms"] > 0
        browser.say("refresh", token="nonsense")
        browser.error("signed_out")
        browser.say("refresh", token=world.token("somebody-else"))
        browser.error("signed_out")
        assert_alive(browser)
        browser.say("sign_out")
        assert browser.closed().code == 4001
