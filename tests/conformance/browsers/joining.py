"""Joining a scope, and being kept from it."""

from __future__ import annotations

import contextlib
import json
import socket
import time

from browser import BINARY, TEXT, Browser, b64, get
from node import free_ports

from .front import assert_alive, check, gateway, World


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
def an_address_has_only_so_many_connections_whatever_it_does_with_them(world: World) -> None:
    with gateway(world, per_ip=2) as narrow, contextlib.ExitStack() as stack:
        host, port = narrow.address.rsplit(":", 1)

        def opened(source: str) -> socket.socket:
            return stack.enter_context(socket.create_connection((host, int(port)), 20, (source, 0)))

        idle = [opened("127.0.0.1") for _ in range(16)]
        with contextlib.suppress(ConnectionError):
            assert opened("127.0.0.1").recv(1) == b"", "one more is closed at once"
        other = opened("127.0.0.2")
        other.sendall(b"GET /oidc HTTP/1.1\r\nHost: x\r\n\r\n")
        assert other.recv(64).startswith(b"HTTP/1.1 200")
        idle.pop().close()


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
