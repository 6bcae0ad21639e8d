"""What is tried with every client: the rows of the matrix in docs/kafka.md, and what the clients' files share."""

from __future__ import annotations

import contextlib
import itertools
import time
import uuid

import robot
from node import stream_of

# The name of the method that tries it, and what it is in the table.
ROWS = {
    "lists_topics": "list topics",
    "produces_plain": "produce, uncompressed",
    "produces_gzip": "produce, gzip",
    "produces_snappy": "produce, snappy",
    "produces_lz4": "produce, lz4",
    "produces_zstd": "produce, zstd",
    "produces_idempotent": "produce, idempotent",
    "produces_with_every_acks": "produce, acks 0, 1 and all",
    "keeps_keys_headers_and_nulls": "keys, headers (twice the same), nulls, times",
    "sees_the_times_of_the_broker": "times of the broker (LogAppendTime)",
    "sends_large_messages": "a message of 900 KB",
    "is_slowed_by_a_quota": "slowed by a quota, told so, and nothing refused",
    "consumes_assigned": "consume assigned partitions from the beginning",
    "seeks_by_time": "seek by time",
    "sees_the_ends": "beginning, end and lag",
    "commits_and_resumes": "group: commit and go on",
    "shares_with_a_second_member": "group: two members share",
    "takes_over_from_one_that_leaves": "group: a member leaves",
    "takes_over_from_one_that_dies": "group: a member dies",
    "keeps_its_place_as_static_member": "group: static member comes back",
    "rebalances_cooperatively": "group: cooperative rebalance",
    "consumes_with_the_consumer_protocol": "group: consumer protocol (KIP-848)",
    "creates_and_deletes_topics": "admin: create and delete topics",
    "reads_and_changes_configs": "admin: configs",
    "deletes_records": "admin: delete records",
    "describes_groups": "admin: list, describe and delete groups",
    "logs_in_with_plain": "SASL/PLAIN",
    "logs_in_with_oauthbearer": "SASL/OAUTHBEARER",
    "is_refused_with_a_wrong_token": "a wrong token is refused",
    "speaks_tls": "TLS, SASL/PLAIN with a Felix token",
    "logs_in_with_a_service_account": "TLS, SASL/PLAIN with a service account's key",
    "logs_in_with_a_provider": "TLS, SASL/OAUTHBEARER with a provider's token",
    "renews_its_login": "a login is renewed before it runs out (KIP-368)",
}

# Rows that take long by themselves, and are tried with all clients at once while the others go on.
TOGETHER = {"renews_its_login"}

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
NUMBERS = itertools.count()
PATIENCE = 60.0


def fresh(what: str) -> str:
    """A name that nothing has."""
    return f"{what}-{next(NUMBERS)}-{uuid.uuid4().hex[:6]}"


def until(attempt, seconds: float = PATIENCE):
    """What the attempt gives once it gives something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = attempt()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"nothing after {seconds} s")


def batches(node, topic: str) -> bytes:
    """What is in the log of a topic's only partition."""
    with robot.Wire(node) as wire:
        error, _, records = robot.fetched(wire.ask(robot.FETCH, 11, robot.fetch(topic, 0)), topic)
    assert error == 0, error
    return records


def stored_codec(node, topic: str) -> str:
    """How the first batch in the log is compressed."""
    return CODECS[batches(node, topic)[22] & 7]


def producer_id(node, topic: str) -> int:
    """The idempotent producer of the first batch in the log; -1 for none."""
    return int.from_bytes(batches(node, topic)[43:51], "big", signed=True)


def count(node, topic: str) -> int:
    """How many records a topic's only partition has had."""
    with robot.Wire(node) as wire:
        error, high, _ = robot.fetched(wire.ask(robot.FETCH, 11, robot.fetch(topic, 0)), topic)
    assert error == 0, error
    return high


@contextlib.contextmanager
def slow_topic(node):
    """A topic of a namespace that may take few bytes a second; the quota goes with it, so that nothing else is slowed."""
    namespace = f"slow{next(NUMBERS)}"
    tenant = f"/v1/tenants/{node.tenant}"
    node.request("POST", f"{tenant}/namespaces", {"namespace": namespace})
    node.request("POST", f"{tenant}/namespaces/{namespace}/streams", stream_of("stream", {}))
    quota = f"{tenant}/quotas/namespaces/{namespace}"
    node.request("PUT", quota, {"publish_bytes_per_second": 20_000})
    yield f"{namespace}.stream"
    node.request("DELETE", quota)


VALUES = [f"value {number} ".encode() * 40 for number in range(50)]
