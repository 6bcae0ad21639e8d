"""Drives the browser gateway with a WebSocket client written from the protocol's page alone: every message and every code
of version 1, and the features beyond it.

    python tests/conformance/gateway.py DIRECTORY_OF_OUR_PROGRAMS

Starts `felixctl dev` for what lies behind, an identity provider of its own, and gateways in front; prints
`N passed, N failed`. Each check is a function whose name is the sentence that is true.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import json
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Callable, Iterator

from browser import BINARY, TEXT, Browser, Closed, Provider, b64, get, provider, unb64
from node import Node, free_ports, running, scratch, start, wait_for

SECONDS_PER_CHECK = 120
CHECKS: list[Callable[["World"], None]] = []
BOARDS = itertools.count()

SCOPE = """
{top}
[scope]
field = "board"

[[scope.streams]]
alias = "edits"
name = "board-{{scope}}-edits"
actions = ["publish", "subscribe"]

[[scope.streams]]
alias = "cursors"
name = "board-{{scope}}-cursors"
actions = ["publish", "subscribe"]
stamp_sender = true

[[scope.streams]]
alias = "news"
name = "board-{{scope}}-news"
actions = ["subscribe"]

[[scope.streams]]
alias = "secret"
name = "secret-{{scope}}"
actions = ["publish", "subscribe"]
optional = true

[[scope.streams]]
alias = "limited"
name = "board-{{scope}}-limited"
actions = ["publish"]
writes_per_s = 1
write_burst = 2

[[scope.caches]]
alias = "presence"
name = "board-{{scope}}-presence"
actions = ["read", "write", "watch"]
ttl_s = 15

[[scope.caches]]
alias = "brief"
name = "board-{{scope}}-brief"
actions = ["read", "write", "watch"]
ttl_s = 1

[[scope.caches]]
alias = "readonly"
name = "board-{{scope}}-readonly"
actions = ["read"]

[[scope.counters]]
alias = "seq"
name = "board-{{scope}}-seq"
actions = ["add"]

[limits]
max_payload_bytes = 4096
sessions_per_ip = {per_ip}
sessions_per_principal = {per_person}
[limits.session]
writes_per_s = {rate}
write_burst = {burst}
byte_burst = 1073741824
bytes_per_s = 1073741824
[limits.principal]
writes_per_s = {rate}
write_burst = {person_burst}
bytes_per_s = 1073741824
byte_burst = 1073741824
"""


@dataclass
class Gateway:
    address: str
    process: subprocess.Popen

    @property
    def url(self) -> str:
        return f"http://{self.address}"


@dataclass
class World:
    node: Node
    provider: Provider
    directory: pathlib.Path
    gateway: Gateway

    def token(self, person: str = "ann", **more) -> str:
        return self.provider.sign_in(person, groups=more.pop("groups", ["people"]), **more)

    def board(self, *, but: tuple[str, ...] = ()) -> str:
        """A board whose streams and caches exist, but those named."""
        board = f"b{next(BOARDS)}"
        for stream, durable in (("edits", True), ("cursors", False), ("news", True), ("limited", True)):
            if stream not in but:
                self.node.create_stream(name=f"board-{board}-{stream}", durable=durable)
        for cache in ("presence", "brief", "readonly", "seq"):
            if cache not in but:
                self.node.create_cache(name=f"board-{board}-{cache}")
        return board

    def join(self, board: str, person: str = "ann", features: tuple[str, ...] = (), gateway: Gateway | None = None) -> Browser:
        browser = Browser((gateway or self.gateway).address)
        more = {"features": list(features)} if features else {}
        browser.say("join", board=board, token=self.token(person), **more)
        browser.hello = browser.expect("hello")
        return browser

    def refused(self, gateway: Gateway | None = None, **join) -> tuple[dict, Closed]:
        """What a join is answered with that is refused, and how the socket is closed."""
        with Browser((gateway or self.gateway).address) as browser:
            browser.say("join", **join)
            return browser.hear(), browser.closed()


def check(function: Callable[[World], None]) -> Callable[[World], None]:
    CHECKS.append(function)
    return function


# Joining


@check
def oidc_says_how_to_sign_in(world: World) -> None:
    status, body, _ = get(world.gateway.url + "/oidc")
    assert status == 200
    wanted = {"issuer": world.provider.issuer, "client_id": "page", "scopes": "openid profile"}
    assert json.loads(body) == wanted


@check
def hello_says_what_was_joined(world: World) -> None:
    board = world.board()
    with world.join(board, features=("rate_limited", "telepathy", "principal")) as browser:
        hello = browser.hello
        assert hello["protocol"] == 1 and hello["namespace"] == "default" and hello["board"] == board
        assert hello["features"] == ["rate_limited", "principal"]
        assert hello["cache_ttl_ms"] == {"presence": 15000, "brief": 1000}
        assert hello["missing"] == ["secret"]
        assert hello["principal"]
    with world.join(board) as browser:
        assert browser.hello["features"] == [] and "principal" not in browser.hello


@check
def a_join_that_cannot_be_is_answered_with_its_code_and_closed(world: World) -> None:
    board, good = world.board(), world.token()
    for join, code in (
        ({"board": board, "token": good, "protocol": 2}, "unsupported"),
        ({"board": "a/b", "token": good}, "bad_request"),
        ({"board": "x" * 65, "token": good}, "bad_request"),
        ({"token": good}, "bad_request"),
        ({"board": board, "token": "no.token.atall"}, "signed_out"),
        ({"board": board}, "signed_out"),
        ({"board": board, "token": world.token(seconds=-600)}, "signed_out"),
        ({"board": board, "token": world.token(groups=["strangers"])}, "forbidden"),
    ):
        error, closed = world.refused(**join)
        assert (error["type"], error["code"]) == ("error", code), (join, error)
        assert closed.code == 1008, closed
        assert good not in json.dumps(error)


@check
def what_comes_before_a_join_is_a_bad_request_and_closed(world: World) -> None:
    for kind, first in ((TEXT, b'{"type":"publish"}'), (TEXT, b"hello"), (BINARY, b"\x02 ")):
        with Browser(world.gateway.address) as browser:
            browser.send_frame(kind, first)
            assert browser.hear()["code"] == "bad_request"
            assert browser.closed().code == 1008


@check
def a_second_join_is_a_bad_request_and_the_session_stays(world: World) -> None:
    with world.join(world.board()) as browser:
        browser.say("join", board="x", token="y")
        browser.error("bad_request")
        assert_alive(browser)


@check
def without_a_control_plane_a_join_is_unavailable(world: World) -> None:
    (port,) = free_ports(1)
    with gateway(world, GATEWAY_FELIX_CONTROL_PLANE=f"http://127.0.0.1:{port}") as lonely:
        error, _ = world.refused(lonely, board="b", token=world.token())
        assert error["code"] == "unavailable", error


@check
def without_a_broker_a_join_is_unavailable(world: World) -> None:
    (port,) = free_ports(1)
    with gateway(world, GATEWAY_FELIX_BROKERS=f"127.0.0.1:{port}") as lonely:
        error, _ = world.refused(lonely, board=world.board(), token=world.token())
        assert error["code"] == "unavailable", error


@check
def a_first_message_has_ten_seconds_to_come(world: World) -> None:
    with Browser(world.gateway.address) as browser:
        began = time.monotonic()
        assert browser.closed().code == 1008
        assert 9 <= time.monotonic() - began <= 15


@check
def what_is_sent_behind_a_join_waits_for_hello(world: World) -> None:
    with Browser(world.gateway.address) as browser:
        browser.say("join", board=world.board(), token=world.token())
        browser.say("publish", stream="edits", payload=b64(b"early"), ack=True, id=1)
        assert browser.hear()["type"] == "hello"
        assert browser.hear() == {"type": "ack", "id": 1, "offset": 0}


@check
def sessions_of_a_person_and_of_an_address_are_bounded(world: World) -> None:
    board = world.board()
    with gateway(world, per_person=2, per_ip=3) as narrow:
        with world.join(board, gateway=narrow), world.join(board, gateway=narrow):
            error, _ = world.refused(narrow, board=board, token=world.token())
            assert error["code"] == "unavailable", error
            error, _ = world.refused(narrow, board=board, token=world.token(), features=["rate_limited"])
            assert error["code"] == "rate_limited" and error["retry_after_ms"] > 0, error
            with world.join(board, "bob", gateway=narrow):
                error, _ = world.refused(narrow, board=board, token=world.token("eve"))
                assert error["code"] == "unavailable", error
        refused = json.loads(get(narrow.url + "/metrics")[1])["limits_refused"]
        assert (refused["principal_sessions"], refused["ip_sessions"]) == (2, 1), refused


@check
def pages_of_other_sites_may_not_connect(world: World) -> None:
    for origin, status in (
        (None, 101),
        (world.gateway.url, 101),
        ("http://evil.example", 403),
        (world.gateway.url + ".evil.example", 403),
        (world.gateway.url.replace("http", "https"), 403),
        ("null", 403),
    ):
        with Browser(world.gateway.address, origin=origin) as browser:
            assert browser.status == status, origin


# Publishing and subscribing


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


# Counters and caches


@check
def a_counter_answers_its_sum(world: World) -> None:
    with world.join(world.board()) as browser:
        for delta, value in ((5, 5), (-7, -2)):
            browser.say("counter_add", counter="seq", key="n", delta=delta, id=value & 255)
            assert browser.hear() == {"type": "counter", "id": value & 255, "value": value}
    with world.join(world.board(but=("seq",))) as browser:
        browser.say("counter_add", counter="seq", key="n", delta=1, id=3)
        browser.error("counter_failed", id=3)


@check
def a_cache_holds_what_is_put_until_it_is_deleted(world: World) -> None:
    with world.join(world.board()) as browser:
        browser.say("cache_get", cache="presence", key="me", id=1)
        assert browser.hear() == {"type": "cache_value", "id": 1, "payload": None}
        browser.say("cache_put", cache="presence", key="me", payload=b64(b"here"))
        # A question is answered as soon as it can be; the ack says that the put before it is done.
        publish(browser, b"", 2)
        browser.say("cache_get", cache="presence", key="me", id=3)
        assert browser.hear() == {"type": "cache_value", "id": 3, "payload": b64(b"here")}
        browser.say("cache_delete", cache="presence", key="me")
        publish(browser, b"", 4)
        browser.say("cache_get", cache="presence", key="me", id=5)
        assert browser.hear() == {"type": "cache_value", "id": 5, "payload": None}


@check
def a_cache_that_is_not_there_fails_with_its_alias(world: World) -> None:
    with world.join(world.board(but=("presence",))) as browser:
        browser.say("cache_put", cache="presence", key="k", payload="")
        browser.error("cache_failed", cache="presence")
        browser.say("cache_delete", cache="presence", key="k")
        browser.error("cache_failed", cache="presence")
        browser.say("cache_get", cache="presence", key="k", id=3)
        browser.error("cache_failed", id=3)
        browser.say("cache_watch", cache="presence")
        browser.error("watch_failed", cache="presence")


@check
def a_watch_begins_with_every_entry_and_tells_changes_and_ends_of_entries(world: World) -> None:
    board = world.board()
    with world.join(board) as writer, world.join(board, "bob") as watcher:
        writer.say("cache_put", cache="brief", key="one", payload=b64(b"1"))
        writer.say("cache_put", cache="presence", key="two", payload=b64(b"2"))
        publish(writer, b"", 1)
        watcher.say("cache_watch", cache="presence")
        entries = watcher.hear()
        assert (entries["type"], entries["cache"]) == ("cache_entries", "presence")
        (entry,) = entries["entries"]
        assert (entry["key"], entry["payload"]) == ("two", b64(b"2")) and 0 < entry["expires_in_ms"] <= 15000
        writer.say("cache_put", cache="presence", key="three", payload=b64(b"3"))
        change = watcher.expect("cache_change", key="three")
        assert change["payload"] == b64(b"3") and 0 < change["expires_in_ms"] <= 15000
        writer.say("cache_delete", cache="presence", key="two")
        assert watcher.expect("cache_change", key="two")["payload"] is None
        watcher.say("cache_watch", cache="presence")
        assert {entry["key"] for entry in watcher.expect("cache_entries")["entries"]} == {"three"}
        watcher.say("cache_watch", cache="brief")
        watcher.expect("cache_entries", cache="brief")
        writer.say("cache_put", cache="brief", key="soon", payload=b64(b"s"))
        assert watcher.expect("cache_change", key="soon")["payload"] == b64(b"s")
        gone = watcher.expect("cache_change", key="soon")
        assert gone["payload"] is None and gone["expires_in_ms"] is None


@check
def versions_guard_writes_to_a_cache(world: World) -> None:
    with world.join(world.board(), features=("cache_versions",)) as browser:
        browser.say("cache_put_if", cache="presence", key="k", payload=b64(b"1"), **{"if": "absent"}, id=1)
        first = browser.expect("cache_put_result", id=1)
        assert first["applied"] is True
        browser.say("cache_put_if", cache="presence", key="k", payload=b64(b"2"), **{"if": "absent"}, id=2)
        second = browser.expect("cache_put_result", id=2)
        assert second["applied"] is False and second["version"] == first["version"]
        browser.say("cache_get", cache="presence", key="k", id=3)
        got = browser.expect("cache_value", id=3)
        assert got["payload"] == b64(b"1") and got["version"] == first["version"]
        wanted = {"if": {"version": first["version"]}}
        browser.say("cache_put_if", cache="presence", key="k", payload=b64(b"3"), id=4, **wanted)
        third = browser.expect("cache_put_result", id=4)
        assert third["applied"] is True and third["version"] > first["version"]
        browser.say("cache_delete_if", cache="presence", key="k", version=first["version"], id=5)
        assert browser.expect("cache_delete_result", id=5)["applied"] is False
        browser.say("cache_delete_if", cache="presence", key="k", version=third["version"], id=6)
        assert browser.expect("cache_delete_result", id=6) == {
            "type": "cache_delete_result", "id": 6, "applied": True, "version": None,
        }


# What is not understood


@check
def a_bad_message_is_told_and_the_session_stays(world: World) -> None:
    with world.join(world.board()) as browser:
        for text, code in (
            ("{", "bad_request"),
            ("[1]", "bad_request"),
            ('"text"', "bad_request"),
            ('{"no":"type"}', "bad_request"),
            ('{"type":"dance"}', "unsupported"),
            ('{"type":"publish","stream":"edits","payload":"@@","ack":true,"id":1}', "bad_request"),
            ('{"type":"publish","stream":"edits","payload":"aGk","ack":true,"id":1}', "bad_request"),
            ('{"type":"publish","stream":"edits","payload":"aGk="}', "bad_request"),
            ('{"type":"publish","stream":"nowhere","payload":"","ack":true,"id":1}', "bad_request"),
            ('{"type":"publish","stream":"news","payload":"","ack":true,"id":1}', "bad_request"),
            ('{"type":"counter_add","counter":"nowhere","key":"k","delta":1,"id":1}', "bad_request"),
            ('{"type":"cache_put","cache":"readonly","key":"k","payload":""}', "bad_request"),
            ('{"type":"cache_put","cache":"presence","key":"a/b","payload":""}', "bad_request"),
            ('{"type":"cache_watch","cache":"readonly"}', "bad_request"),
            ('{"type":"throttle","bits_per_second":1000}', "unsupported"),
            ('{"type":"subscribe","stream":"edits"}', "bad_request"),
        ):
            browser.say_text(text)
            error = browser.hear()
            assert error["type"] == "error" and error["code"] == code, (text, error)
        browser.send_frame(BINARY, b"\x00")
        browser.error("bad_request")
        assert_alive(browser)


@check
def every_refusal_of_a_write_carries_its_id_or_cache(world: World) -> None:
    with world.join(world.board()) as browser:
        browser.say("publish", stream="nowhere", payload="", ack=False, id=41)
        browser.error("bad_request", id=41)
        browser.say("cache_put", cache="nowhere", key="k", payload="")
        browser.error("bad_request", cache="nowhere")


@check
def a_payload_over_the_limit_is_a_bad_request_and_a_frame_far_over_it_closes(world: World) -> None:
    with world.join(world.board()) as browser:
        browser.say("publish", stream="edits", payload=b64(b"x" * 4096), ack=True, id=1)
        browser.expect("ack", id=1)
        browser.say("publish", stream="edits", payload=b64(b"x" * 4097), ack=True, id=2)
        browser.error("bad_request", id=2)
        assert_alive(browser)
        browser.say("publish", stream="edits", payload=b64(b"x" * 65536), ack=True, id=3)
        assert browser.closed().code == 1009


@check
def a_length_that_was_never_sent_takes_nothing_and_closes(world: World) -> None:
    with world.join(world.board()) as browser:
        browser.socket.sendall(struct.pack(">BBQ", 0x81, 0xFF, 1 << 62) + b"\0\0\0\0")
        assert browser.closed().code in (1009, 1002)


# Limits


@check
def writes_over_the_rate_fail_with_their_own_code(world: World) -> None:
    with world.join(world.board()) as browser:
        for number in range(2):
            browser.say("publish", stream="limited", payload="", ack=True, id=number)
            browser.expect("ack", id=number)
        browser.say("publish", stream="limited", payload="", ack=False, id=9)
        error = browser.error("publish_failed", id=9)
        assert "retry_after_ms" not in error


@check
def with_rate_limited_a_refused_write_says_when_it_may_come_again(world: World) -> None:
    with world.join(world.board(), features=("rate_limited",)) as browser:
        for number in range(3):
            browser.say("publish", stream="limited", payload="", ack=True, id=number)
        error = browser.error("rate_limited", id=2)
        assert 0 < error["retry_after_ms"] <= 1000
    refused = json.loads(get(world.gateway.url + "/metrics")[1])["limits_refused"]
    assert refused["alias_rate"] >= 1


@check
def limits_hold_for_a_person_over_all_his_sessions(world: World) -> None:
    board = world.board()
    with gateway(world, rate=1) as slow:
        with world.join(board, features=("rate_limited",), gateway=slow) as one:
            with world.join(board, features=("rate_limited",), gateway=slow) as two:
                # Two hundred at once are what a person has, one hundred a session.
                for browser in (one, two):
                    for number in range(110):
                        browser.say("counter_add", counter="seq", key="k", delta=1, id=number)
                    answers = [browser.hear() for _ in range(110)]
                    told = sum(answer["type"] == "counter" for answer in answers)
                    assert 95 <= told <= 109, told
                    refused = [answer for answer in answers if answer["type"] == "error"]
                    assert refused and {answer["code"] for answer in refused} == {"rate_limited"}
                    assert all(answer["retry_after_ms"] > 0 for answer in refused)


@check
def throttle_holds_events_back_and_drops_none(world: World) -> None:
    board = world.board()
    with gateway(world, top="allow_throttle = true") as throttling:
        with world.join(board, gateway=throttling) as reader, world.join(board, "bob", gateway=throttling) as writer:
            reader.say("subscribe", stream="edits", **{"from": "live"})
            reader.expect("subscribed")
            reader.say("throttle", bits_per_second=16000)
            for number in range(20):
                publish(writer, b"x" * 100, number)
            began = time.monotonic()
            assert [event["offset"] for event in reader.events(20)] == list(range(20))
            assert time.monotonic() - began > 0.8, "twenty events are four thousand bytes"
            reader.say("throttle", bits_per_second=None)
            reader.say("throttle", bits_per_second=-1)
            reader.error("bad_request")


# Features


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
        browser.say("state_get", stream="edits", key="a b", id=2)
        browser.error("bad_request", id=2)


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


# The beacon


@check
def a_beacon_deletes_a_key(world: World) -> None:
    board = world.board()
    with world.join(board) as browser:
        browser.say("cache_put", cache="presence", key="me", payload=b64(b"here"))
        publish(browser, b"", 1)
        browser.say("cache_watch", cache="presence")
        browser.expect("cache_entries")
        assert beacon(world, board=board, cache="presence", key="me", token=world.token())[0] == 204
        assert browser.expect("cache_change", key="me")["payload"] is None


@check
def a_beacon_that_cannot_be_says_why(world: World) -> None:
    board, token = world.board(), world.token()
    for body, status, code in (
        ({"board": "a b", "cache": "presence", "key": "k", "token": token}, 400, "bad_request"),
        ({"board": board, "cache": "presence", "key": "", "token": token}, 400, "bad_request"),
        ({"board": board, "cache": "readonly", "key": "k", "token": token}, 400, "bad_request"),
        ({"board": board, "cache": "nowhere", "key": "k", "token": token}, 400, "bad_request"),
        ({"board": board, "cache": "presence", "key": "k", "token": "x.y.z"}, 403, "signed_out"),
        ({"board": board, "cache": "presence", "key": "k", "token": world.token(groups=[])}, 403, "forbidden"),
    ):
        answer, text = beacon(world, **body)
        assert answer == status, (body, answer, text)
        assert json.loads(text)["type"] == "error" and json.loads(text)["code"] == code, text
    assert get(world.gateway.url + "/members/leave", b"{")[0] == 400
    with gateway(world, rate=1) as slow:
        body = {"board": board, "cache": "presence", "key": "k", "token": token}
        statuses = [beacon(world, slow, **body)[0] for _ in range(210)]
        assert statuses[0] == 204 and 429 in statuses, statuses


# Sharing


@check
def one_more_browser_on_a_board_costs_the_broker_no_subscription(world: World) -> None:
    board = world.board()
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(world.join(board, f"p{number}")) for number in range(6)]
        readers[0].say("subscribe", stream="edits", **{"from": "live"})
        readers[0].expect("subscribed")
        one = wait_until(lambda: subscriptions(world), 1)
        for reader in readers[1:]:
            reader.say("subscribe", stream="edits", **{"from": "live"})
            reader.expect("subscribed")
        publish(readers[0], b"hi", 1)
        for reader in readers:
            assert reader.expect("event")["offset"] == 0
        many = wait_until(lambda: subscriptions(world), one)
        assert (one, many) == (1, 1), (one, many)


@check
def the_shared_subscription_goes_on_when_the_one_it_ran_on_leaves(world: World) -> None:
    board = world.board()
    with world.join(board, "writer") as writer, contextlib.ExitStack() as stack:
        readers = [stack.enter_context(world.join(board, f"p{number}")) for number in range(4)]
        for reader in readers:
            reader.say("subscribe", stream="edits", **{"from": "live"})
            reader.expect("subscribed")
        number = 0
        while readers:
            for _ in range(20):
                publish(writer, b"%d" % number, number)
                number += 1
            for reader in readers:
                offsets = [event["offset"] for event in reader.events(20)]
                assert offsets == list(range(number - 20, number)), offsets
            publish(writer, b"between", 10_000 + number)
            readers.pop(0).close()
            number += 1
            for reader in readers:
                assert reader.expect("event")["offset"] == number - 1
        assert wait_until(lambda: subscriptions(world), 0) == 0


@check
def a_browser_that_does_not_read_changes_nothing_for_the_others(world: World) -> None:
    """B67. Pings are off: this one would be given up after fourteen seconds, and is to get all there is."""
    board = world.board()
    with gateway(world, GATEWAY_PING_INTERVAL_S="0") as patient, contextlib.ExitStack() as stack:
        writer, good, lazy = (stack.enter_context(world.join(board, who, gateway=patient)) for who in ("w", "g", "l"))
        lazy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for reader in (good, lazy):
            reader.say("subscribe", stream="edits", **{"from": "live"})
            reader.expect("subscribed")
        longest = 0.0
        for number in range(2500):
            began = time.monotonic()
            publish(writer, b"x" * 4000, number)
            assert good.expect("event")["offset"] == number
            longest = max(longest, time.monotonic() - began)
        # 13 MB went by the lazy one, more than its socket and the gateway hold. It gets all of it, late.
        lazy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        assert [event["offset"] for event in lazy.events(2500)] == list(range(2500))
        print(f"        slowest round trip beside a browser that does not read: {longest * 1e3:.0f} ms", flush=True)


@check
def a_hostile_browser_changes_nothing_for_the_others(world: World) -> None:
    board = world.board()
    with world.join(board) as good, world.join(board, "bad") as bad:
        for number in range(300):
            bad.say_text("{" * 100)
            bad.say("publish", stream="nowhere", payload="", ack=True, id=number)
            publish(good, b"x", number)
        assert_alive(bad)


@check
def a_browser_that_falls_silent_is_noticed_within_fifteen_seconds(world: World) -> None:
    with world.join(world.board()) as browser:
        browser.answers_pings = False
        began = time.monotonic()
        closed = browser.closed(20)
        assert closed.code == 4002 and time.monotonic() - began <= 15.5, closed


# The end


@check
def a_gateway_that_stops_answers_its_writes_and_sends_its_browsers_away(world: World) -> None:
    board = world.board()
    with gateway(world) as leaving:
        with world.join(board, features=("drain",), gateway=leaving) as told, world.join(board, gateway=leaving) as plain:
            for number in range(50):
                told.say("publish", stream="edits", payload=b64(b"last"), ack=True, id=number)
            told.expect("ack", id=0)
            leaving.process.send_signal(signal.SIGTERM)
            assert told.expect("going_away")["reconnect_after_ms"] >= 500
            assert told.closed().code == 1001
            acked = [message["id"] for message in told.kept if message["type"] == "ack"]
            assert acked == sorted(acked)
            assert plain.closed().code == 1001
            assert leaving.process.wait(20) == 0


@check
def metrics_are_served_in_both_forms(world: World) -> None:
    with world.join(world.board()) as browser:
        publish(browser, b"", 1)
        metrics = json.loads(get(world.gateway.url + "/metrics")[1])
        assert set(metrics["felix_publish_ack.edits"]) == {"count", "p50_us", "p90_us", "p99_us", "max_us"}
        assert set(metrics["browser_rtt"]) == {"count", "p50_us", "p90_us", "p99_us", "max_us"}
        wanted = {"message_size", "session_rate", "alias_rate", "principal_rate", "principal_sessions", "ip_sessions"}
        assert set(metrics["limits_refused"]) == wanted
        text = get(world.gateway.url + "/metrics/prometheus")[1].decode()
        assert "felix_gateway_sessions" in text and "felix_gateway_joins_total" in text


@check
def pages_come_with_headers_that_protect_them(world: World) -> None:
    status, body, headers = get(world.gateway.url + "/")
    assert (status, body) == (200, b"<p>here</p>")
    policy = headers["Content-Security-Policy"] if "Content-Security-Policy" in headers else headers["content-security-policy"]
    assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert get(world.gateway.url + "/nothing")[0] == 404
    assert get(world.gateway.url + "/../scope.toml")[0] in (400, 404)


# What the checks share


def publish(browser: Browser, payload: bytes, number: int) -> None:
    """Publishes and waits for the ack."""
    browser.say("publish", stream="edits", payload=b64(payload), ack=True, id=number)
    browser.expect("ack", id=number)


def assert_alive(browser: Browser) -> None:
    browser.say("counter_add", counter="seq", key="alive", delta=0, id=424242)
    browser.expect("counter", id=424242)


def beacon(world: World, at: Gateway | None = None, **body) -> tuple[int, bytes]:
    url = (at or world.gateway).url + "/members/leave"
    status, text, _ = get(url, json.dumps(body).encode(), **{"Content-Type": "text/plain"})
    return status, text


def subscriptions(world: World) -> int:
    """How many subscriptions the broker has, of everybody."""
    text = get(world.node.broker_admin_url + "/metrics")[1].decode()
    (line,) = [line for line in text.splitlines() if line.startswith("felix_broker_subscriptions ")]
    return int(float(line.split()[1]))


def wait_until(look: Callable[[], int], wanted: int) -> int:
    deadline = time.monotonic() + 20
    while (found := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def delete_records(world: World, stream: str, *, before: int) -> None:
    """Deletes what lies below an offset, with the request that Kafka has for it."""
    host, port = world.node.kafka_bootstrap.rsplit(":", 1)
    name = stream.encode()
    body = struct.pack(f">ih{len(name)}siiqi", 1, len(name), name, 1, 0, before, 10_000)
    head = struct.pack(">hhih", 21, 1, 7, -1)
    with socket.create_connection((host, int(port)), 20) as kafka:
        kafka.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + struct.unpack(">i", answer[:4])[0]:
            answer += kafka.recv(4096)
    assert answer[-2:] == b"\0\0", f"Kafka's error {answer[-2:].hex()}"


@contextlib.contextmanager
def gateway(world: World, *, top: str = "", per_ip: int = 0, per_person: int = 0, rate: int = 5000, **more: str) -> Iterator[Gateway]:
    directory = world.directory / f"gateway-{next(BOARDS)}"
    directory.mkdir()
    (directory / "web").mkdir()
    (directory / "web" / "index.html").write_text("<p>here</p>")
    scope = directory / "scope.toml"
    # A hundred at once and twice that for a person are what holds by default.
    bursts = {"burst": max(rate, 100), "person_burst": max(2 * rate, 200)}
    scope.write_text(SCOPE.format(top=top, per_ip=per_ip, per_person=per_person, rate=rate, **bursts))
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    variables = {
        "GATEWAY_SCOPE_FILE": str(scope),
        "GATEWAY_TENANT": world.node.tenant,
        "GATEWAY_OIDC_CLIENT_ID": "page",
        "GATEWAY_OIDC_ISSUER": world.provider.issuer,
        "GATEWAY_LISTEN": address,
        "GATEWAY_FELIX_BROKERS": ",".join(world.node.brokers),
        "GATEWAY_FELIX_SERVER_NAME": world.node.server_name,
        "GATEWAY_FELIX_CA_FILE": world.node.ca_file,
        "GATEWAY_FELIX_CONTROL_PLANE": world.node.controlplane_url,
        "GATEWAY_WEB_DIR": str(directory / "web"),
        **more,
    }
    with running(directory, ["felix-gateway"], variables) as process:
        wait_for(process, lambda: get(f"http://{address}/oidc"))
        yield Gateway(address, process)


@contextlib.contextmanager
def world() -> Iterator[World]:
    allowed = {
        "FELIX_CONTROLPLANE_OIDC_ALLOW_INSECURE_HTTP": "true",
        "FELIX_CONTROLPLANE_OIDC_ALLOW_PRIVATE_IDP": "true",
    }
    with scratch() as directory, start(**allowed) as node, provider(directory) as idp:
        issuer = {"issuer": idp.issuer, "audiences": ["page"]}
        node.request("POST", f"/v1/tenants/{node.tenant}/idp-issuers", issuer)
        for over, actions in (
            ("stream:dev/default/board-*", ("stream.publish", "stream.subscribe")),
            ("cache:dev/default/*", ("cache.read", "cache.write")),
        ):
            for action in actions:
                policy = {"subject": "role:painters", "object": over, "action": action}
                node.request("POST", f"/v1/tenants/{node.tenant}/rbac/policies", policy)
        grouping = {"user": f"group:{idp.issuer}#people", "role": "role:painters"}
        node.request("POST", f"/v1/tenants/{node.tenant}/rbac/groupings", grouping)
        whole = World(node, idp, directory, None)
        with gateway(whole) as front:
            whole.gateway = front
            yield whole


def main() -> int:
    passed = failed = 0
    wanted = sys.argv[2:]
    with world() as everything:
        for one in CHECKS:
            name = one.__name__.replace("_", " ")
            if wanted and not any(word in one.__name__ for word in wanted):
                continue
            began = time.monotonic()
            faulthandler.dump_traceback_later(SECONDS_PER_CHECK, exit=True)
            try:
                one(everything)
            except Exception:
                failed += 1
                print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
            else:
                passed += 1
                print(f"ok      {name} ({time.monotonic() - began:.2f} s)", flush=True)
            finally:
                faulthandler.cancel_dump_traceback_later()
        if failed:
            print(everything.gateway.process.log.read_text(errors="replace")[-8000:], flush=True)
    print(f"\n{passed} passed, {failed} failed", flush=True)
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
