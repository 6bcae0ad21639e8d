"""The consumer groups of the published Python package, both its clients. `pypi_client.py` runs these checks."""

from __future__ import annotations

import asyncio
import threading
from typing import Callable

import felix

from node import Node

TENANT, NAMESPACE, GROUP = "dev", "default", "workers"
CHECKS: list[Callable[[Node], None]] = []


def check(function: Callable[[Node], None]) -> Callable[[Node], None]:
    CHECKS.append(function)
    return function


def client_of(node: Node, token: str | None = None) -> felix.Client:
    return felix.Client(
        node.brokers,
        tenant_id=TENANT,
        token=token or node.token,
        server_name=node.server_name,
        ca_file=node.ca_file,
    )


class Group:
    """One group of one stream with ten records, as one client sees it."""

    def __init__(self, node: Node, client: felix.Client, records: int = 10, **settings):
        self.client = client
        self.stream = node.create_stream(**settings)
        for number in range(records):
            client.publish(TENANT, NAMESPACE, self.stream, b"%d" % number)

    @property
    def where(self) -> tuple[str, str, str, int, str]:
        return TENANT, NAMESPACE, self.stream, 0, GROUP

    def poll(self, *, max_records: int = 32, wait: float = 0.0, **options) -> list[felix.GroupRecord]:
        return self.client.group_poll(*self.where, max_records=max_records, wait=wait, **options)

    def ack(self, offset: int) -> None:
        self.client.group_ack(*self.where, offset)

    def nack(self, record: felix.GroupRecord) -> None:
        self.client.group_nack(*self.where, record)

    def dead_letters(self) -> list[int]:
        return self.client.group_dead_letters(*self.where)


def refused(code: str, action: Callable[[], object]) -> felix.FelixError:
    try:
        outcome = action()
    except felix.FelixError as error:
        assert error.code == code, f"code {error.code!r} is not {code!r}: {error}"
        return error
    raise AssertionError(f"not refused, but answered {outcome!r}")


@check
def a_group_hands_out_records_in_order_and_acks_finish_them(node: Node) -> None:
    with client_of(node) as client:
        group = Group(node, client)
        first = group.poll(max_records=4)
        assert [(one.offset, one.payload, one.attempts) for one in first] == [
            (number, b"%d" % number, 1) for number in range(4)
        ]
        assert all(one.skipped_before == 0 for one in first)
        for one in first:
            group.ack(one.offset)
            group.ack(one.offset)
        assert [one.offset for one in group.poll()] == list(range(4, 10))
        assert group.poll() == []


@check
def a_poll_that_waits_gets_what_is_published_meanwhile(node: Node) -> None:
    with client_of(node) as client, client_of(node) as other:
        group = Group(node, client, records=0)
        publisher = threading.Timer(0.2, lambda: other.publish(TENANT, NAMESPACE, group.stream, b"late"))
        publisher.start()
        found = group.poll(wait=20.0)
        publisher.join()
        assert [one.payload for one in found] == [b"late"]
        assert group.poll(wait=0.1) == []


@check
def a_record_given_back_comes_again_and_after_five_times_is_a_dead_letter(node: Node) -> None:
    with client_of(node) as client:
        group = Group(node, client, records=2)
        for attempt in range(1, 6):
            (record,) = group.poll(max_records=1)
            assert (record.offset, record.attempts) == (0, attempt)
            group.nack(record)
        group.nack(record)
        assert group.dead_letters() == [0]
        assert [one.offset for one in group.poll()] == [1]


@check
def dead_letters_are_redriven_and_discarded(node: Node) -> None:
    with client_of(node) as client:
        group = Group(node, client, records=2)
        for _ in range(5):
            for record in group.poll():
                group.nack(record)
        assert group.dead_letters() == [0, 1]
        client.group_redrive(*group.where, 1)
        client.group_discard(*group.where, 0)
        assert group.dead_letters() == []
        refused("invalid_request", lambda: client.group_redrive(*group.where, 0))
        (record,) = group.poll()
        assert (record.offset, record.payload, record.attempts) == (1, b"1", 1)


@check
def a_named_consumer_reclaims_what_it_held_on_a_connection_before(node: Node) -> None:
    with client_of(node) as client:
        group = Group(node, client, records=3)
        assert len(group.poll(consumer="w1")) == 3
        with client_of(node) as again:
            taken = again.group_poll(*group.where, wait=0.0, consumer="w2", reclaim=True)
            assert taken == [], taken
            taken = again.group_poll(*group.where, wait=0.0, consumer="w1", reclaim=True)
            assert [(one.offset, one.attempts) for one in taken] == [(0, 2), (1, 2), (2, 2)]


@check
def groups_do_not_see_each_other(node: Node) -> None:
    with client_of(node) as client:
        group = Group(node, client, records=3)
        for name in ("one", "two"):
            found = client.group_poll(TENANT, NAMESPACE, group.stream, 0, name, wait=0.0)
            assert [one.offset for one in found] == [0, 1, 2], name
            for one in found:
                client.group_ack(TENANT, NAMESPACE, group.stream, 0, name, one.offset)


@check
def acks_of_what_is_not_there_and_unknown_shards_are_refused(node: Node) -> None:
    with client_of(node) as client:
        group = Group(node, client, records=1)
        refused("invalid_request", lambda: group.ack(1))
        where = TENANT, NAMESPACE, group.stream, 7, GROUP
        refused("invalid_request", lambda: client.group_poll(*where, wait=0.0))
        refused("not_found", lambda: client.group_poll(TENANT, NAMESPACE, "nothing", 0, GROUP, wait=0.0))
        assert isinstance(client.publish(TENANT, NAMESPACE, group.stream, b"still alive"), int)


@check
def a_token_for_one_group_does_not_reach_another(node: Node) -> None:
    with client_of(node) as client:
        group = Group(node, client, records=1)
    token = node.mint([f"group.consume:group:{TENANT}/{NAMESPACE}/{group.stream}/{GROUP}"])
    with client_of(node, token) as narrow:
        assert len(narrow.group_poll(*group.where, wait=0.0)) == 1
        refused("forbidden", lambda: narrow.group_poll(TENANT, NAMESPACE, group.stream, 0, "other", wait=0.0))
        refused("forbidden", lambda: narrow.group_redrive(*group.where, 0))


@check
def the_asynchronous_client_works_on_a_group_alike(node: Node) -> None:
    async def run() -> None:
        client = await felix.AsyncClient.connect(
            node.brokers,
            tenant_id=TENANT,
            token=node.token,
            server_name=node.server_name,
            ca_file=node.ca_file,
        )
        where = TENANT, NAMESPACE, node.create_stream(), 0, GROUP
        for number in range(8):
            await client.publish(*where[:3], b"%d" % number)
        batches = await asyncio.gather(*(client.group_poll(*where, max_records=2, wait=5.0) for _ in range(4)))
        found = sorted(one.offset for batch in batches for one in batch)
        assert found == list(range(8)), found
        records = [one for batch in batches for one in batch]
        for record in records[1:]:
            await client.group_ack(*where, record.offset)
        record = records[0]
        for attempt in range(1, 6):
            assert record.attempts == attempt
            await client.group_nack(*where, record)
            if attempt < 5:
                (record,) = await client.group_poll(*where, wait=5.0)
        assert await client.group_dead_letters(*where) == [record.offset]
        await client.group_redrive(*where, record.offset)
        (again,) = await client.group_poll(*where, wait=5.0)
        assert again.offset == record.offset
        for _ in range(5):
            await client.group_nack(*where, again)
            for again in await client.group_poll(*where, wait=0.1):
                assert again.offset == record.offset
        assert await client.group_dead_letters(*where) == [record.offset]
        await client.group_discard(*where, record.offset)
        assert await client.group_dead_letters(*where) == []
        assert await client.group_poll(*where, wait=0.1) == []

    asyncio.run(run())
