"""What is not understood, and what is too much."""

from __future__ import annotations

import json
import struct
import time

from browser import BINARY, b64, get

from .front import assert_alive, check, gateway, publish, World


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
def subscriptions_that_are_begun_over_and_over_are_refused_and_nobody_else_is(world: World) -> None:
    board = world.board()
    with world.join(board, features=("rate_limited",)) as eager, world.join(board, "bob") as calm:
        for _ in range(400):
            eager.say("subscribe", stream="edits", **{"from": "live"})
        assert 0 < eager.error("rate_limited", stream="edits")["retry_after_ms"] <= 1000
        calm.say("subscribe", stream="edits", **{"from": "live"})
        calm.expect("subscribed")
        publish(calm, b"x", 1)
        assert calm.expect("event")["offset"] == 0
        assert_alive(eager)


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
