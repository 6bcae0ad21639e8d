"""Counters, caches and the beacon of a closing tab."""

from __future__ import annotations

import json

from browser import b64, get

from .front import beacon, check, gateway, publish, World


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
