"""The end of a gateway, and what it serves beside the socket."""

from __future__ import annotations

import json
import signal
import time

from browser import Browser, b64, get

from .front import check, gateway, publish, World


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
def whoever_says_nothing_does_not_hold_up_a_gateway_that_stops(world: World) -> None:
    with gateway(world) as leaving, Browser(leaving.address) as silent:
        assert silent.status == 101
        began = time.monotonic()
        leaving.process.send_signal(signal.SIGTERM)
        assert silent.closed().code == 1001
        assert leaving.process.wait(20) == 0
        assert time.monotonic() - began < 8, "nobody has to wait for the ten seconds that a first message has"


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
