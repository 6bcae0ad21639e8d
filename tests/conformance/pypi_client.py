"""Drives a node of ours with the published Python package `felix-client`, unmodified, from PyPI.

    python tests/conformance/pypi_client.py DIRECTORY_OF_OUR_PROGRAMS

Starts `felixctl dev` on free ports with directories of its own and runs every check against it; then some of them
against a control plane and a broker as two processes; and prints `N passed, N failed`. Each check is a function whose docstring is the sentence that is true; nothing sleeps, and a
check that hangs ends the run with a trace of where.
"""

from __future__ import annotations

import asyncio
import base64
import faulthandler
import json
import threading
import time
import traceback
from typing import Callable

import felix

import commits
import groups
import tokens
from node import Node, start, start_separately

TENANT, NAMESPACE = "dev", "default"
SECONDS_PER_CHECK = 90
EVENT_SECONDS = 20.0
CHECKS: list[Callable[[Node], None]] = []


def check(function: Callable[[Node], None]) -> Callable[[Node], None]:
    CHECKS.append(function)
    return function


def client_of(node: Node, token: str | None = None, tenant: str = TENANT, **options) -> felix.Client:
    return felix.Client(
        node.brokers,
        tenant_id=tenant,
        token=token or node.token,
        server_name=node.server_name,
        ca_file=node.ca_file,
        **options,
    )


async def async_client_of(node: Node, token: str | None = None, tenant: str = TENANT) -> felix.AsyncClient:
    return await felix.AsyncClient.connect(
        node.brokers,
        tenant_id=tenant,
        token=token or node.token,
        server_name=node.server_name,
        ca_file=node.ca_file,
    )


def refused(kind: type[felix.FelixError], code: str | None, action: Callable[[], object]) -> felix.FelixError:
    """The action must raise exactly this class, with this code when one is given."""
    try:
        outcome = action()
    except felix.FelixError as error:
        assert type(error) is kind, f"{type(error).__name__}({error}) is not {kind.__name__}"
        assert code is None or error.code == code, f"code {error.code!r} is not {code!r}: {error}"
        return error
    raise AssertionError(f"not refused, but answered {outcome!r}")


def events(subscription, count: int) -> list[felix.Event]:
    found = []
    for _ in range(count):
        event = subscription.next_event(timeout=EVENT_SECONDS)
        assert event is not None, f"ended after {len(found)} of {count} events"
        found.append(event)
    return found


def payloads(subscription, count: int) -> list[bytes]:
    return [event.payload for event in events(subscription, count)]


def hashed_shard(key: bytes, shards: int) -> int:
    """The protocol's key hash with modulo routing, written down a second time."""
    word = 0xFFFF_FFFF_FFFF_FFFF
    value = 0xCBF2_9CE4_8422_2325
    for byte in key:
        value = (value ^ byte) * 0x0000_0100_0000_01B3 & word
    for shift, factor in ((30, 0xBF58_476D_1CE4_E5B9), (27, 0x94D0_49BB_1331_11EB)):
        value = (value ^ value >> shift) * factor & word
    return (value ^ value >> 31) % shards


# --- publishing ------------------------------------------------------------------------------------------------


@check
def the_package_is_the_published_one(node: Node) -> None:
    assert felix.__version__ == "0.6.2", felix.__version__


@check
def a_client_connects_with_and_without_a_protocol_name_on_one_port(node: Node) -> None:
    stream = node.create_stream()
    for offer, expected in ((False, 0), (True, 1)):
        with client_of(node, offer_alpn=offer) as client:
            assert client.publish(TENANT, NAMESPACE, stream, b"x") == expected


@check
def an_acknowledged_publish_to_a_durable_stream_gives_dense_offsets_from_zero(node: Node) -> None:
    stream = node.create_stream()
    with client_of(node) as client:
        for ack, first in (("per_message", 0), ("per_batch", 10)):
            offsets = [client.publish(TENANT, NAMESPACE, stream, b"x", ack=ack) for _ in range(10)]
            assert offsets == list(range(first, first + 10)), offsets


@check
def a_publish_without_ack_returns_at_once_and_arrives(node: Node) -> None:
    stream = node.create_stream()
    with client_of(node) as client, client.subscribe(TENANT, NAMESPACE, stream, start="earliest") as reader:
        sent = [b"%d" % number for number in range(50)]
        assert [client.publish(TENANT, NAMESPACE, stream, one, ack="none") for one in sent] == [None] * 50
        assert payloads(reader, 50) == sent


@check
def an_at_least_once_publish_is_acknowledged(node: Node) -> None:
    stream = node.create_stream()
    with client_of(node) as client:
        assert client.publish(TENANT, NAMESPACE, stream, b"x", at_least_once=True) == 0


@check
def every_ack_mode_takes_a_key(node: Node) -> None:
    stream = node.create_stream(shards=4)
    with client_of(node) as client, client.subscribe_sharded(TENANT, NAMESPACE, stream, start="earliest") as reader:
        for ack in ("per_message", "per_batch", "none"):
            client.publish(TENANT, NAMESPACE, stream, ack.encode(), key=b"customer-2", ack=ack)
        found = sharded(reader, 3)
        assert [shard for shard, _ in found] == [2, 2, 2], found
        assert sorted(event.payload for _, event in found) == [b"none", b"per_batch", b"per_message"]


@check
def payloads_of_any_bytes_and_sizes_come_back_as_they_were(node: Node) -> None:
    stream = node.create_stream()
    sent = [b"", bytes(range(256)), b"\x00" * 70_000, b"\xff" * 1_000_000]
    with client_of(node) as client, client.subscribe(TENANT, NAMESPACE, stream, start="earliest") as reader:
        for one in sent:
            client.publish(TENANT, NAMESPACE, stream, one)
        assert payloads(reader, len(sent)) == sent


@check
def an_in_memory_stream_delivers_live_and_shows_no_offsets(node: Node) -> None:
    stream = node.create_stream(durable=False)
    with client_of(node) as client, client.subscribe(TENANT, NAMESPACE, stream) as reader:
        assert client.publish(TENANT, NAMESPACE, stream, b"x") is None
        (event,) = events(reader, 1)
        assert (event.payload, event.offset) == (b"x", None)


@check
def a_stream_is_usable_as_soon_as_its_creation_was_answered(node: Node) -> None:
    with client_of(node) as client:
        for _ in range(20):
            assert client.publish(TENANT, NAMESPACE, node.create_stream(), b"x") == 0


# --- subscribing -----------------------------------------------------------------------------------------------


@check
def earliest_delivers_all_there_is_and_then_what_comes(node: Node) -> None:
    stream = node.create_stream()
    with client_of(node) as client:
        for number in range(100):
            client.publish(TENANT, NAMESPACE, stream, b"%d" % number)
        with client.subscribe(TENANT, NAMESPACE, stream, start="earliest") as reader:
            found = events(reader, 100)
            assert [(one.offset, one.payload) for one in found] == [(n, b"%d" % n) for n in range(100)]
            client.publish(TENANT, NAMESPACE, stream, b"live")
            assert payloads(reader, 1) == [b"live"]


@check
def latest_delivers_only_what_comes(node: Node) -> None:
    stream = node.create_stream()
    with client_of(node) as client:
        client.publish(TENANT, NAMESPACE, stream, b"old")
        for start in ("latest", None):
            with client.subscribe(TENANT, NAMESPACE, stream, start=start) as reader:
                offset = client.publish(TENANT, NAMESPACE, stream, b"new")
                (event,) = events(reader, 1)
                assert (event.offset, event.payload) == (offset, b"new")


@check
def an_offset_delivers_from_there_and_the_end_is_a_good_offset(node: Node) -> None:
    stream = node.create_stream()
    with client_of(node) as client:
        for number in range(10):
            client.publish(TENANT, NAMESPACE, stream, b"%d" % number)
        with client.subscribe(TENANT, NAMESPACE, stream, start=7) as reader:
            assert [one.offset for one in events(reader, 3)] == [7, 8, 9]
        with client.subscribe(TENANT, NAMESPACE, stream, start=10) as reader:
            client.publish(TENANT, NAMESPACE, stream, b"10")
            assert [one.offset for one in events(reader, 1)] == [10]


@check
def an_offset_past_the_end_is_a_cursor_error_that_names_the_end(node: Node) -> None:
    stream = node.create_stream()
    with client_of(node) as client:
        client.publish(TENANT, NAMESPACE, stream, b"x")
        error = refused(
            felix.CursorError, None, lambda: client.subscribe(TENANT, NAMESPACE, stream, start=2)
        )
        assert "1" in str(error), error


@check
def an_offset_below_retention_is_a_cursor_error_that_names_the_oldest(node: Node) -> None:
    stream = node.create_stream(retention={"max_age_seconds": None, "max_size_bytes": 1_000_000})
    with client_of(node) as client:

        def too_old() -> felix.CursorError | None:
            for _ in range(4):
                client.publish(TENANT, NAMESPACE, stream, b"z" * 500_000)
            try:
                client.subscribe(TENANT, NAMESPACE, stream, start=0).close()
            except felix.CursorError as error:
                return error
            return None

        error = until(too_old)
        with client.subscribe(TENANT, NAMESPACE, stream, start="earliest") as reader:
            (event,) = events(reader, 1)
            assert event.offset > 0 and str(error), error


@check
def history_and_live_join_without_a_hole_or_a_repeat_under_publishing(node: Node) -> None:
    stream = node.create_stream()
    total = 4_000
    with client_of(node) as publisher, client_of(node) as client:

        def publish() -> None:
            for number in range(total):
                publisher.publish(TENANT, NAMESPACE, stream, b"%d" % number, ack="none")

        thread = threading.Thread(target=publish)
        thread.start()
        for start in ("earliest", 0):
            with client.subscribe(TENANT, NAMESPACE, stream, start=start) as reader:
                found = events(reader, total)
                assert [one.offset for one in found] == list(range(total))
                assert [one.payload for one in found] == [b"%d" % number for number in range(total)]
        thread.join()


@check
def two_subscribers_of_one_stream_see_the_same(node: Node) -> None:
    stream = node.create_stream()
    with client_of(node) as client:
        readers = [client.subscribe(TENANT, NAMESPACE, stream, start="earliest") for _ in range(5)]
        for number in range(20):
            client.publish(TENANT, NAMESPACE, stream, b"%d" % number)
        for reader in readers:
            assert payloads(reader, 20) == [b"%d" % number for number in range(20)]
            reader.close()


@check
def a_deleted_stream_ends_its_subscriptions(node: Node) -> None:
    stream = node.create_stream()
    with client_of(node) as client, client.subscribe(TENANT, NAMESPACE, stream) as reader:
        node.delete_stream(stream)
        assert reader.next_event(timeout=EVENT_SECONDS) is None
        assert reader.closed


@check
def a_name_created_again_begins_at_zero(node: Node) -> None:
    stream = node.create_stream()
    with client_of(node) as client:
        assert [client.publish(TENANT, NAMESPACE, stream, b"a") for _ in range(3)] == [0, 1, 2]
        node.delete_stream(stream)
        node.create_stream(name=stream)
        assert client.publish(TENANT, NAMESPACE, stream, b"b") == 0
        with client.subscribe(TENANT, NAMESPACE, stream, start="earliest") as reader:
            assert payloads(reader, 1) == [b"b"]


# --- shards ----------------------------------------------------------------------------------------------------


def sharded(reader, count: int) -> list[tuple[int, felix.Event]]:
    found = []
    while len(found) < count:
        one = reader.next_event(timeout=EVENT_SECONDS)
        assert isinstance(one, felix.ShardRecord), f"{one!r} after {len(found)} of {count}"
        found.append((one.shard, one.event))
    return found


@check
def keys_choose_the_shards_that_the_protocol_says(node: Node) -> None:
    known = {b"a": 0, b"k7": 0, b"order-1": 3, b"customer-0": 0, b"customer-1": 3, b"customer-2": 2, b"": 3}
    keys = [*known, *(b"key-%d" % number for number in range(40))]
    assert {key: hashed_shard(key, 4) for key in known} == known
    stream = node.create_stream(shards=4)
    with client_of(node) as client, client.subscribe_sharded(TENANT, NAMESPACE, stream, start="earliest") as reader:
        assert client.stream_shards(TENANT, NAMESPACE, stream) == 4
        assert reader.shards == 4
        for key in keys:
            client.publish(TENANT, NAMESPACE, stream, b"<" + key, key=key)
        client.publish(TENANT, NAMESPACE, stream, b"no key")
        found = {event.payload: shard for shard, event in sharded(reader, len(keys) + 1)}
        assert found.pop(b"no key") == 0
        assert found == {b"<" + key: hashed_shard(key, 4) for key in keys}


@check
def a_key_keeps_its_order(node: Node) -> None:
    stream = node.create_stream(shards=3)
    keys = [b"customer-%d" % number for number in range(6)]
    with client_of(node) as client, client.subscribe_sharded(TENANT, NAMESPACE, stream, start="earliest") as reader:
        for number in range(30):
            for key in keys:
                client.publish(TENANT, NAMESPACE, stream, key + b"/%d" % number, key=key)
        found = [event.payload for _, event in sharded(reader, 30 * len(keys))]
        for key in keys:
            own = [one for one in found if one.startswith(key + b"/")]
            assert own == [key + b"/%d" % number for number in range(30)]


@check
def a_sharded_subscription_resumes_after_its_positions(node: Node) -> None:
    stream = node.create_stream(shards=4)
    keys = [b"key-%d" % number for number in range(40)]
    with client_of(node) as client:
        with client.subscribe_sharded(TENANT, NAMESPACE, stream, start="earliest") as reader:
            for key in keys:
                client.publish(TENANT, NAMESPACE, stream, b"first " + key, key=key)
            sharded(reader, len(keys))
            positions = reader.positions()
        for key in keys:
            client.publish(TENANT, NAMESPACE, stream, b"second " + key, key=key)
        with client.subscribe_sharded(TENANT, NAMESPACE, stream, resume=positions) as reader:
            found = sorted(event.payload for _, event in sharded(reader, len(keys)))
            assert found == sorted(b"second " + key for key in keys)


# --- caches and counters ---------------------------------------------------------------------------------------


def changes(watch, count: int) -> list[felix.CacheChange]:
    found = []
    for _ in range(count):
        change = watch.recv(timeout=EVENT_SECONDS)
        assert isinstance(change, felix.CacheChange), f"{change!r} after {len(found)} of {count}"
        found.append(change)
    return found


def told(found: list[felix.CacheChange]) -> list[tuple[str, bytes | None]]:
    return [(change.key, change.value) for change in found]


@check
def a_value_is_there_until_it_is_deleted_whatever_its_bytes(node: Node) -> None:
    for settings in ({}, {"shards": 4}, {"durable": False}):
        cache = node.create_cache(**settings)
        with client_of(node) as client:
            at = (TENANT, NAMESPACE, cache)
            assert client.cache_get(*at, "k") is None
            for key, value in {"k": b"v", "empty": b"", "\u65e5\u672c": bytes(range(256)), "large": b"x" * 900_000}.items():
                assert client.cache_put(*at, key, value) is None
                assert client.cache_get(*at, key) == value, key
            client.cache_put(*at, "k", b"second")
            assert client.cache_delete(*at, "k") == b"second"
            assert client.cache_delete(*at, "k") is None
            assert client.cache_get(*at, "k") is None


@check
def a_value_is_gone_once_its_time_is_over_and_a_put_begins_it_anew(node: Node) -> None:
    cache = node.create_cache()
    at = (TENANT, NAMESPACE, cache)
    with client_of(node) as client, client.watch_cache(*at, felix.CacheWatchFilter.key("k")) as watch:
        client.cache_put(*at, "k", b"short", ttl=0.5)
        client.cache_put(*at, "stays", b"long", ttl=3600.0)
        (put, gone) = changes(watch, 2)
        assert (put.value, gone.value) == (b"short", None) and put.expires_at_millis > time.time() * 1000 - 10_000
        assert client.cache_get(*at, "k") is None
        assert client.cache_get(*at, "stays") == b"long"
        client.cache_put(*at, "k", b"again")
        assert client.cache_get(*at, "k") == b"again"


@check
def a_value_written_by_one_client_is_read_by_another_at_once(node: Node) -> None:
    at = (TENANT, NAMESPACE, node.create_cache(shards=3))
    with client_of(node) as writer, client_of(node) as reader:
        for number in range(100):
            writer.cache_put(*at, f"k{number % 7}", b"%d" % number)
            assert reader.cache_get(*at, f"k{number % 7}") == b"%d" % number


@check
def counters_add_up_across_threads_and_are_apart_from_values(node: Node) -> None:
    at = (TENANT, NAMESPACE, node.create_cache(shards=2))
    with client_of(node) as client:
        assert client.counter_get(*at, "c") is None
        assert client.counter_add(*at, "c", 5) == 5
        assert client.counter_add(*at, "c", -7) == -2
        client.cache_put(*at, "c", b"value")
        assert client.counter_get(*at, "c") == -2
        sums: list[int] = []
        threads = [
            threading.Thread(target=lambda: sums.extend(client.counter_add(*at, "many", 1) for _ in range(100)))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(sums) == list(range(1, 801))
        assert client.counter_get(*at, "many") == 800


@check
def a_sum_out_of_range_is_refused_and_changes_nothing(node: Node) -> None:
    at = (TENANT, NAMESPACE, node.create_cache())
    with client_of(node) as client:
        client.counter_add(*at, "c", 2**63 - 1)
        refused(felix.FelixError, "invalid_request", lambda: client.counter_add(*at, "c", 1))
        assert client.counter_get(*at, "c") == 2**63 - 1


@check
def a_watch_sees_changes_of_its_key_or_prefix_in_order(node: Node) -> None:
    at = (TENANT, NAMESPACE, node.create_cache())
    with client_of(node) as client:
        with client.watch_cache(*at, felix.CacheWatchFilter.key("a1")) as one, client.watch_cache(
            *at, felix.CacheWatchFilter.prefix("a")
        ) as some, client.watch_cache(*at, felix.CacheWatchFilter.prefix("")) as every:
            client.cache_put(*at, "a1", b"1")
            client.cache_put(*at, "b", b"2")
            client.counter_add(*at, "a1", 1)
            client.cache_put(*at, "a2", b"3")
            client.cache_delete(*at, "a1")
            assert told(changes(one, 2)) == [("a1", b"1"), ("a1", None)]
            assert told(changes(some, 3)) == [("a1", b"1"), ("a2", b"3"), ("a1", None)]
            found = changes(every, 4)
            assert told(found) == [("a1", b"1"), ("b", b"2"), ("a2", b"3"), ("a1", None)]
            offsets = [change.offset for change in found]
            assert offsets == sorted(set(offsets))
            assert all(change.expires_at_millis == 0 for change in found)


@check
def a_retained_watch_begins_with_what_is_there_and_goes_on_with_what_comes(node: Node) -> None:
    at = (TENANT, NAMESPACE, node.create_cache())
    with client_of(node) as client:
        for number in range(30):
            client.cache_put(*at, f"k{number % 10}", b"%d" % number)
        client.cache_delete(*at, "k0")
        with client.watch_cache(*at, felix.CacheWatchFilter.prefix("k"), retained=True) as watch:
            assert (watch.retained_count, watch.resnapshot) == (9, False)
            client.cache_put(*at, "k1", b"live")
            assert dict(told(changes(watch, 9))) == {f"k{key}": b"%d" % (20 + key) for key in range(1, 10)}
            (live,) = changes(watch, 1)
            assert (live.key, live.value) == ("k1", b"live") and live.offset >= watch.resume_offset


@check
def a_watch_resumes_at_an_offset_without_a_hole(node: Node) -> None:
    at = (TENANT, NAMESPACE, node.create_cache())
    with client_of(node) as client:
        for number in range(10):
            client.cache_put(*at, "k", b"%d" % number)
        with client.watch_cache(*at, felix.CacheWatchFilter.key("k"), start=4) as watch:
            assert told(changes(watch, 6)) == [("k", b"%d" % number) for number in range(4, 10)]
            assert watch.retained_count is None
        refused(
            felix.CursorError, None, lambda: client.watch_cache(*at, felix.CacheWatchFilter.key("k"), start=11)
        )


@check
def a_cache_says_the_same_after_its_log_was_compacted(node: Node) -> None:
    cache = node.create_cache()
    at = (TENANT, NAMESPACE, cache)

    def log_bytes() -> int | None:
        logs = node.secret_file.parent.glob(f"broker/caches/{TENANT}/{NAMESPACE}/{cache}@*/0/data/*.log")
        try:
            return sum(log.stat().st_size for log in logs)
        except FileNotFoundError:
            return None  # it was replaced just now

    with client_of(node) as client:
        for number in range(1_500):
            client.cache_put(*at, f"k{number % 50}", b"%d " % number + b"x" * 2_000)
            client.counter_add(*at, f"c{number % 5}", 2)
        # Three megabytes were put. Every other second the broker looks whether compacting is worth it.
        until(lambda: (log_bytes() or 3_000_000) < 1_200_000 or None)
        for key in range(50):
            assert client.cache_get(*at, f"k{key}").startswith(b"%d " % (1_450 + key))
        assert [client.counter_get(*at, f"c{key}") for key in range(5)] == [600] * 5
        with client.watch_cache(*at, felix.CacheWatchFilter.prefix(""), start=0) as watch:
            assert {change.key for change in changes(watch, 50)} == {f"k{key}" for key in range(50)}


@check
def cache_requests_that_cannot_be_are_refused_and_the_client_goes_on(node: Node) -> None:
    cache = node.create_cache()
    at = (TENANT, NAMESPACE, cache)
    reading = node.mint([f"cache.read:cache:{TENANT}/{NAMESPACE}/{cache}"])
    with client_of(node) as client, client_of(node, reading) as reader:
        refused(felix.FelixError, "invalid_request", lambda: client.cache_put(*at, "", b"v"))
        refused(felix.FelixError, "limit_exceeded", lambda: client.cache_put(*at, "k" * 5_000, b"v"))
        refused(felix.FelixError, "limit_exceeded", lambda: client.cache_put(*at, "k", b"v" * 1_100_000))
        refused(felix.NotFoundError, "not_found", lambda: client.cache_get(TENANT, NAMESPACE, "no-such-cache", "k"))
        client.cache_put(*at, "k", b"v")
        assert reader.cache_get(*at, "k") == b"v"
        refused(felix.AuthError, "forbidden", lambda: reader.cache_put(*at, "k", b"other"))
        refused(felix.AuthError, "forbidden", lambda: reader.cache_delete(*at, "k"))
        refused(felix.AuthError, "forbidden", lambda: reader.counter_add(*at, "k", 1))
        assert reader.counter_get(*at, "k") is None
        with reader.watch_cache(*at, felix.CacheWatchFilter.prefix(""), retained=True) as watch:
            assert told(changes(watch, 1)) == [("k", b"v")]
        assert client.cache_get(*at, "k") == b"v"


@check
def the_asynchronous_client_uses_caches_and_counters_alike(node: Node) -> None:
    at = (TENANT, NAMESPACE, node.create_cache(shards=2))
    whole = (TENANT, NAMESPACE, node.create_cache())

    async def work() -> None:
        client = await async_client_of(node)
        await asyncio.gather(*(client.cache_put(*at, f"k{number}", b"%d" % number) for number in range(64)))
        found = await asyncio.gather(*(client.cache_get(*at, f"k{number}") for number in range(64)))
        assert found == [b"%d" % number for number in range(64)]
        sums = await asyncio.gather(*(client.counter_add(*at, "c", 2) for _ in range(64)))
        assert sorted(sums) == list(range(2, 130, 2))
        assert await client.counter_get(*at, "c") == 128
        assert await client.cache_delete(*at, "k1") == b"1"
        await client.cache_put(*whole, "a", b"1", ttl=3600)
        async with await client.watch_cache(*whole, felix.CacheWatchFilter.prefix(""), retained=True) as watch:
            assert watch.retained_count == 1
            first = await watch.recv(timeout=EVENT_SECONDS)
            await client.cache_delete(*whole, "a")
            second = await watch.recv(timeout=EVENT_SECONDS)
            assert told([first, second]) == [("a", b"1"), ("a", None)]

    asyncio.run(work())


# --- refusals --------------------------------------------------------------------------------------------------


@check
def an_unknown_stream_or_namespace_is_not_found(node: Node) -> None:
    with client_of(node) as client:
        for namespace, stream in ((NAMESPACE, "no-such-stream"), ("no-such-namespace", "orders")):
            refused(felix.NotFoundError, "not_found", lambda: client.publish(TENANT, namespace, stream, b"x"))
            refused(felix.NotFoundError, "not_found", lambda: client.subscribe(TENANT, namespace, stream))
        assert isinstance(client.publish(TENANT, NAMESPACE, "orders", b"still alive"), int)


@check
def a_name_outside_the_grammar_is_refused_and_answers_only_itself(node: Node) -> None:
    with client_of(node) as client:
        for name in ("..", "a/b", "", "x" * 200, "a\x00b", "*"):
            try:
                client.publish(TENANT, NAMESPACE, name, b"x")
            except felix.FelixError as error:
                assert error.code in ("not_found", "invalid_request"), (name, error.code)
            else:
                raise AssertionError(f"{name!r} was published to")
        assert isinstance(client.publish(TENANT, NAMESPACE, "orders", b"still alive"), int)


@check
def another_tenant_in_a_request_is_forbidden(node: Node) -> None:
    with client_of(node) as client:
        refused(felix.AuthError, "forbidden", lambda: client.publish("other", NAMESPACE, "orders", b"x"))
        # Everything but a publish is refused by the client itself, without a code.
        refused(felix.FelixError, None, lambda: client.subscribe("other", NAMESPACE, "orders"))


@check
def a_token_without_the_permission_is_forbidden_and_may_still_do_what_it_may(node: Node) -> None:
    stream, other = node.create_stream(), node.create_stream()
    token = node.mint([f"stream.publish:stream:{TENANT}/{NAMESPACE}/{stream}"])
    with client_of(node, token) as client:
        refused(felix.AuthError, "forbidden", lambda: client.publish(TENANT, NAMESPACE, other, b"x"))
        refused(felix.AuthError, "forbidden", lambda: client.subscribe(TENANT, NAMESPACE, stream))
        assert client.publish(TENANT, NAMESPACE, stream, b"x") == 0
    token = node.mint([f"stream.subscribe:stream:{TENANT}/{NAMESPACE}/*"])
    with client_of(node, token) as client:
        refused(felix.AuthError, "forbidden", lambda: client.publish(TENANT, NAMESPACE, stream, b"x"))
        with client.subscribe(TENANT, NAMESPACE, stream, start="earliest") as reader:
            assert payloads(reader, 1) == [b"x"]


@check
def a_forged_token_is_refused(node: Node) -> None:
    head, body, signature = node.token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))

    def part(value: dict) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    forged = {
        "not a token": "nonsense",
        "no signature": f"{head}.{body}.",
        "alg none": f"{part({'alg': 'none', 'typ': 'JWT'})}.{body}.",
        "alg HS256": f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{body}.{signature}",
        "longer life": f"{head}.{part({**claims, 'exp': claims['exp'] + 1})}.{signature}",
        "other tenant inside": f"{head}.{part({**claims, 'tid': 'other'})}.{signature}",
    }
    for what, token in forged.items():
        try:
            refused(felix.AuthError, "unauthenticated", lambda token=token: client_of(node, token))
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from error


@check
def a_token_of_another_tenant_is_refused(node: Node) -> None:
    node.create_tenant("second")
    refused(felix.AuthError, None, lambda: client_of(node, node.mint([], tenant="second")))
    refused(felix.AuthError, None, lambda: client_of(node, tenant="second"))


@check
def a_token_for_the_control_plane_is_refused_by_the_broker(node: Node) -> None:
    refused(felix.AuthError, "unauthenticated", lambda: client_of(node, node.controlplane_token))


@check
def an_expired_token_is_refused(node: Node) -> None:
    token = node.mint([f"stream.publish:stream:{TENANT}/{NAMESPACE}/*"], seconds=1)

    def expired() -> felix.AuthError | None:
        try:
            with client_of(node, token):
                return None
        except felix.AuthError as error:
            return error

    assert until(expired).code == "unauthenticated"


@check
def a_provider_is_asked_again_after_a_refused_token(node: Node) -> None:
    tokens = iter(["nonsense", node.token])
    client = felix.Client(
        node.brokers,
        tenant_id=TENANT,
        token_provider=lambda: next(tokens, node.token),
        server_name=node.server_name,
        ca_file=node.ca_file,
    )
    with client:
        assert isinstance(client.publish(TENANT, NAMESPACE, "orders", b"x"), int)


@check
def a_payload_over_the_limit_is_refused_and_nothing_is_written(node: Node) -> None:
    stream = node.create_stream()
    with client_of(node) as client:
        refused(felix.FelixError, "limit_exceeded", lambda: client.publish(TENANT, NAMESPACE, stream, b"x" * 1_100_000))
        assert client.publish(TENANT, NAMESPACE, stream, b"fits") == 0


def a_tenant_over_its_rate_is_overloaded_and_told_when_to_come_back(node: Node) -> None:
    """Runs against a node of its own, which has a publish quota."""
    with client_of(node) as client:

        def overloaded() -> felix.OverloadedError | None:
            try:
                client.publish(TENANT, NAMESPACE, "orders", b"x")
            except felix.OverloadedError as error:
                return error
            return None

        error = until(overloaded)
        assert (error.code, error.retry) == ("overloaded", "retry_after"), (error.code, error.retry)
        assert error.detail["reason"] == "tenant_quota" and error.detail["retry_after_ms"] > 0, error.detail
        assert isinstance(until(lambda: publish_or_none(client)), int), "it recovers by itself"


def publish_or_none(client: felix.Client) -> int | None:
    try:
        return client.publish(TENANT, NAMESPACE, "orders", b"x")
    except felix.OverloadedError:
        return None


# --- identities and the asynchronous client --------------------------------------------------------------------


@check
def a_second_tenant_shares_the_connection(node: Node) -> None:
    node.create_tenant("second")
    stream = node.create_stream(tenant="second")
    with client_of(node) as client:
        second = client.with_identity("second", node.mint([], tenant="second"))
        assert second.publish("second", NAMESPACE, stream, b"theirs") == 0
        assert isinstance(client.publish(TENANT, NAMESPACE, "orders", b"ours"), int)
        refused(felix.AuthError, "forbidden", lambda: client.publish("second", NAMESPACE, stream, b"x"))
        refused(felix.AuthError, "forbidden", lambda: second.publish(TENANT, NAMESPACE, "orders", b"x"))
        with second.subscribe("second", NAMESPACE, stream, start="earliest") as reader:
            assert payloads(reader, 1) == [b"theirs"]


@check
def the_broker_is_among_the_endpoints(node: Node) -> None:
    with client_of(node) as client:
        assert set(node.brokers) & set(client.endpoints()), client.endpoints()


@check
def the_asynchronous_client_publishes_subscribes_and_is_refused_alike(node: Node) -> None:
    asyncio.run(asynchronous(node))


async def asynchronous(node: Node) -> None:
    stream, wide = node.create_stream(), node.create_stream(shards=4)
    async with await async_client_of(node) as client:
        publish = client.publish
        assert await publish(TENANT, NAMESPACE, stream, b"0") == 0
        assert await publish(TENANT, NAMESPACE, stream, b"1", ack="per_batch") == 1
        assert await publish(TENANT, NAMESPACE, stream, b"2", ack="none", key=b"k") is None
        assert await publish(TENANT, NAMESPACE, stream, b"3", at_least_once=True) == 3
        many = await asyncio.gather(*(publish(TENANT, NAMESPACE, stream, b"more") for _ in range(100)))
        assert sorted(many) == list(range(4, 104))

        async with await client.subscribe(TENANT, NAMESPACE, stream, start="earliest") as reader:
            found = [await reader.next_event(timeout=EVENT_SECONDS) for _ in range(4)]
            assert [(one.offset, one.payload) for one in found] == [(n, b"%d" % n) for n in range(4)]
        async with await client.subscribe(TENANT, NAMESPACE, stream, start=102) as reader:
            offsets = []
            async for event in reader:
                offsets.append(event.offset)
                if len(offsets) == 2:
                    break
            assert offsets == [102, 103]
        async with await client.subscribe(TENANT, NAMESPACE, stream) as reader:
            await publish(TENANT, NAMESPACE, stream, b"new")
            assert (await reader.next_event(timeout=EVENT_SECONDS)).payload == b"new"

        async with await client.subscribe_sharded(TENANT, NAMESPACE, wide, start="earliest") as reader:
            for number in range(12):
                await publish(TENANT, NAMESPACE, wide, b"%d" % number, key=b"customer-%d" % number)
            records = [await reader.next_event(timeout=EVENT_SECONDS) for _ in range(12)]
            for one in records:
                assert one.shard == hashed_shard(b"customer-" + one.event.payload, 4)

        assert await client.stream_shards(TENANT, NAMESPACE, wide) == 4
        assert set(node.brokers) & set(await client.endpoints())
        second = await client.with_identity("second", node.mint([], tenant="second"))
        await refused_async(felix.AuthError, "forbidden", second.publish(TENANT, NAMESPACE, stream, b"x"))

        async with await client.subscribe_sharded(TENANT, NAMESPACE, wide) as reader:
            node.delete_stream(wide)
            ended = {(await deleted(reader)).shard for _ in range(4)}
            assert ended == {0, 1, 2, 3}, ended

        await refused_async(felix.NotFoundError, "not_found", publish(TENANT, NAMESPACE, "no-such-stream", b"x"))
        await refused_async(felix.AuthError, "forbidden", publish("other", NAMESPACE, stream, b"x"))
        await refused_async(felix.CursorError, None, client.subscribe(TENANT, NAMESPACE, stream, start=1_000))
        await refused_async(felix.FelixError, "limit_exceeded", publish(TENANT, NAMESPACE, stream, b"x" * 1_100_000))
    await refused_async(felix.AuthError, "unauthenticated", async_client_of(node, "nonsense"))


async def deleted(reader) -> felix.StreamDeleted:
    while not isinstance(event := await reader.next_event(timeout=EVENT_SECONDS), felix.StreamDeleted):
        assert event is not None, "the reader ended before every shard had"
    return event


async def refused_async(kind: type[felix.FelixError], code: str | None, action) -> None:
    try:
        outcome = await action
    except felix.FelixError as error:
        assert type(error) is kind, f"{type(error).__name__}({error}) is not {kind.__name__}"
        assert code is None or error.code == code, f"code {error.code!r} is not {code!r}: {error}"
        return
    raise AssertionError(f"not refused, but answered {outcome!r}")


# --- running ---------------------------------------------------------------------------------------------------


def until(attempt: Callable[[], object], seconds: float = 75.0):
    """Repeats an attempt until it gives something, no longer than this."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = attempt()
        if found is not None:
            return found
    raise AssertionError(f"nothing after {seconds} s")


def run(checks: list[Callable[[Node], None]], node: Node) -> tuple[int, int]:
    passed = failed = 0
    for one in checks:
        began = time.monotonic()
        faulthandler.dump_traceback_later(SECONDS_PER_CHECK, exit=True)
        name = one.__name__.replace("_", " ")
        try:
            one(node)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            failed += 1
            print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
        else:
            passed += 1
            print(f"ok      {name} ({time.monotonic() - began:.2f} s)", flush=True)
        finally:
            faulthandler.cancel_dump_traceback_later()
    return passed, failed


def main() -> int:
    outcomes = []
    with start() as node:
        outcomes.append(run(CHECKS + groups.CHECKS + commits.CHECKS + tokens.CHECKS, node))
    with start(quota="dev:0:20") as node:
        outcomes.append(run([a_tenant_over_its_rate_is_overloaded_and_told_when_to_come_back], node))
    print("\na control plane and a broker as two processes", flush=True)
    with start_separately() as node:
        outcomes.append(run(SEPARATE, node))
    passed, failed = (sum(column) for column in zip(*outcomes))
    print(f"\n{passed} passed, {failed} failed", flush=True)
    return 0 if failed == 0 else 1


# What depends on where the control plane is.
SEPARATE = [
    an_acknowledged_publish_to_a_durable_stream_gives_dense_offsets_from_zero,
    a_stream_is_usable_as_soon_as_its_creation_was_answered,
    earliest_delivers_all_there_is_and_then_what_comes,
    a_deleted_stream_ends_its_subscriptions,
    a_name_created_again_begins_at_zero,
    an_unknown_stream_or_namespace_is_not_found,
    a_token_without_the_permission_is_forbidden_and_may_still_do_what_it_may,
    a_forged_token_is_refused,
    a_second_tenant_shares_the_connection,
    the_asynchronous_client_publishes_subscribes_and_is_refused_alike,
]


if __name__ == "__main__":
    raise SystemExit(main())
