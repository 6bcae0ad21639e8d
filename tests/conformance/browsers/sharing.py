"""Many browsers on one board: what they share, and what they do not do to each other."""

from __future__ import annotations

import contextlib
import socket
import time

from browser import b64, unb64

from .front import assert_alive, check, gateway, publish, subscriptions, wait_until, watches, World


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
def one_more_browser_that_watches_a_cache_costs_the_broker_no_watch(world: World) -> None:
    board = world.board()
    with world.join(board, "writer") as writer, contextlib.ExitStack() as stack:
        watchers = [stack.enter_context(world.join(board, f"p{number}")) for number in range(8)]
        writer.say("cache_put", cache="presence", key="first", payload=b64(b"1"))
        publish(writer, b"", 1)
        for watcher in watchers:
            watcher.say("cache_watch", cache="presence")
            (entry,) = watcher.expect("cache_entries")["entries"]
            assert (entry["key"], entry["payload"]) == ("first", b64(b"1"))
        assert wait_until(lambda: watches(world), 1) == 1
        writer.say("cache_put", cache="presence", key="second", payload=b64(b"2"))
        writer.say("cache_delete", cache="presence", key="first")
        for watcher in watchers:
            assert watcher.expect("cache_change", key="second")["payload"] == b64(b"2")
            assert watcher.expect("cache_change", key="first")["payload"] is None
        # Each is told once, and whoever comes later is told what there is now.
        watchers[0].say("cache_watch", cache="presence")
        assert [entry["key"] for entry in watchers[0].expect("cache_entries")["entries"]] == ["second"]
        assert wait_until(lambda: watches(world), 1) == 1
        for watcher in watchers:
            assert_alive(watcher)
            assert not [message for message in watcher.kept if message["type"] == "cache_change"]
    assert wait_until(lambda: watches(world), 0) == 0


@check
def the_shared_watch_goes_on_when_the_one_it_ran_on_leaves(world: World) -> None:
    board = world.board()
    with world.join(board, "writer") as writer, contextlib.ExitStack() as stack:
        watchers = [stack.enter_context(world.join(board, f"p{number}")) for number in range(4)]
        for watcher in watchers:
            watcher.say("cache_watch", cache="presence")
            watcher.expect("cache_entries")
        number = 0
        while watchers:
            watchers.pop(0).close()
            # Some of these come while nobody carries it. What a key holds in the end is told to everybody.
            for _ in range(20):
                number += 1
                writer.say("cache_put", cache="presence", key="k", payload=b64(b"%d" % number))
                writer.say("cache_put", cache="presence", key=f"only-{number}", payload=b64(b"x"))
            writer.say("cache_delete", cache="presence", key=f"only-{number - 1}")
            publish(writer, b"", number)
            for watcher in watchers:
                while watcher.expect("cache_change", key="k")["payload"] != b64(b"%d" % number):
                    pass
                for each in range(number - 19, number + 1):
                    if each != number - 1:
                        assert watcher.expect("cache_change", key=f"only-{each}")["payload"] == b64(b"x")
                watcher.kept.clear()
        assert wait_until(lambda: watches(world), 0) == 0


@check
def nothing_is_missed_of_a_stream_without_a_log_once_a_subscription_stands(world: World) -> None:
    board = world.board()
    with world.join(board, "writer") as writer, world.join(board, "first") as first, world.join(board, "late") as late:
        first.say("subscribe", stream="cursors", **{"from": "live"})
        first.expect("subscribed")
        for number in range(100):
            late.say("subscribe", stream="cursors", **{"from": "live"})
            late.expect("subscribed")
            writer.say("publish", stream="cursors", payload=b64(b"%d" % number), ack=False, id=number)
            event = late.expect("event")
            assert unb64(event["payload"]).endswith(b"%d" % number), (number, event)
            assert first.expect("event")["payload"] == event["payload"]


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
