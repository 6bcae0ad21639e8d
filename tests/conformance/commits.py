"""What the published client's commits and entity state must do. `pypi_client.py` runs these checks among its own."""

from __future__ import annotations

import asyncio
from typing import Callable

import felix

from node import Node

TENANT, NAMESPACE = "dev", "default"
EVENT_SECONDS = 20.0
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


def refused(kind: type[felix.FelixError], action: Callable[[], object]) -> felix.FelixError:
    """The action must raise exactly this class."""
    try:
        outcome = action()
    except felix.FelixError as error:
        assert type(error) is kind, f"{type(error).__name__}({error}) is not {kind.__name__}"
        return error
    raise AssertionError(f"not refused, but answered {outcome!r}")


def state(client: felix.Client, stream: str, entity: bytes, key: str) -> tuple[bytes | None, int | None, int | None]:
    found = client.state_get(TENANT, NAMESPACE, stream, entity, key)
    return (found.value, found.version, found.as_of)


@check
def a_commit_gives_its_event_to_readers_and_its_changes_to_the_state(node: Node) -> None:
    stream = node.create_stream()
    op = felix.CommitOp
    with client_of(node) as client, client.subscribe(TENANT, NAMESPACE, stream, start="earliest") as reader:
        assert client.publish(TENANT, NAMESPACE, stream, b"before") == 0
        ops = [op.publish(stream, b"paid"), op.put(stream, "total", b"12"), op.put(stream, "state", b"open")]
        assert client.commit(TENANT, NAMESPACE, b"order-7", ops).offset == 1
        assert state(client, stream, b"order-7", "total") == (b"12", 1, 1)
        ops = [op.delete(stream, "state"), op.put(stream, "total", bytes(range(256))), op.publish(stream, b"shipped")]
        assert client.commit(TENANT, NAMESPACE, b"order-7", ops).offset == 2
        assert state(client, stream, b"order-7", "total") == (bytes(range(256)), 2, 2)
        assert state(client, stream, b"order-7", "state") == (None, None, 2)
        assert client.publish(TENANT, NAMESPACE, stream, b"after") == 3
        found = [reader.next_event(timeout=EVENT_SECONDS) for _ in range(4)]
        assert [(one.offset, one.payload) for one in found] == [
            (0, b"before"), (1, b"paid"), (2, b"shipped"), (3, b"after"),
        ]


@check
def a_state_that_nobody_committed_is_empty(node: Node) -> None:
    stream = node.create_stream()
    with client_of(node) as client:
        assert state(client, stream, b"nobody", "nothing") == (None, None, None)


@check
def two_entities_on_one_shard_do_not_share_a_key(node: Node) -> None:
    stream = node.create_stream()
    op = felix.CommitOp
    with client_of(node) as client:
        for entity in (b"a", b"b", b""):
            client.commit(TENANT, NAMESPACE, entity, [op.publish(stream, b"x"), op.put(stream, "k", b"<" + entity)])
        for version, entity in enumerate((b"a", b"b", b"")):
            assert state(client, stream, entity, "k") == (b"<" + entity, version, 2)


@check
def enqueue_is_publish_under_another_name(node: Node) -> None:
    stream = node.create_stream()
    op = felix.CommitOp
    with client_of(node) as client, client.subscribe(TENANT, NAMESPACE, stream, start="earliest") as reader:
        client.commit(TENANT, NAMESPACE, b"e", [op.enqueue(stream, b"work"), op.put(stream, "k", b"v")])
        event = reader.next_event(timeout=EVENT_SECONDS)
        assert event is not None and event.payload == b"work"


@check
def a_commit_without_changes_is_an_event_of_its_entity(node: Node) -> None:
    stream = node.create_stream()
    with client_of(node) as client:
        receipt = client.commit(TENANT, NAMESPACE, b"e", [felix.CommitOp.publish(stream, b"looked at")])
        assert receipt.offset == 0
        assert state(client, stream, b"e", "k") == (None, None, 0)


@check
def an_entity_has_one_shard_whichever_way_it_is_asked(node: Node) -> None:
    stream = node.create_stream(shards=4)
    op = felix.CommitOp
    entities = [b"entity-%d" % number for number in range(24)]
    with client_of(node) as client:
        receipts = {
            entity: client.commit(
                TENANT, NAMESPACE, entity, [op.publish(stream, entity), op.put(stream, "name", entity)]
            ).offset
            for entity in entities
        }
        for entity in entities:
            value, version, as_of = state(client, stream, entity, "name")
            assert (value, version) == (entity, receipts[entity])
            assert as_of is not None and as_of >= version


@check
def a_commit_of_two_events_or_none_or_over_two_streams_is_refused_before_it_is_sent(node: Node) -> None:
    stream, other = node.create_stream(), node.create_stream()
    op = felix.CommitOp
    with client_of(node) as client:
        commit = lambda ops: client.commit(TENANT, NAMESPACE, b"e", ops)  # noqa: E731
        two = refused(
            felix.EventCountError, lambda: commit([op.publish(stream, b"a"), op.publish(stream, b"b")])
        )
        assert two.count == 2
        refused(felix.EventCountError, lambda: commit([op.put(stream, "k", b"v")]))
        foreign = refused(
            felix.NotOnOwningShardError, lambda: commit([op.publish(stream, b"a"), op.put(other, "k", b"v")])
        )
        assert {foreign.stream, foreign.owner} == {stream, other}
        # Nothing of it arrived.
        assert client.publish(TENANT, NAMESPACE, stream, b"first") == 0


@check
def commits_need_a_durable_stream_that_exists_and_the_right_to_publish(node: Node) -> None:
    memory, stream = node.create_stream(durable=False), node.create_stream()
    ops = lambda name: [felix.CommitOp.publish(name, b"x"), felix.CommitOp.put(name, "k", b"v")]  # noqa: E731
    with client_of(node) as client:
        error = refused(felix.FelixError, lambda: client.commit(TENANT, NAMESPACE, b"e", ops(memory)))
        assert error.code == "invalid_request", error.code
        # The client asks for the width of a stream first and sends nothing to one that is not there.
        refused_by = felix.FelixError
        try:
            client.commit(TENANT, NAMESPACE, b"e", ops("no-such-stream"))
        except refused_by:
            pass
        else:
            raise AssertionError("a commit to nowhere was answered")
        assert client.commit(TENANT, NAMESPACE, b"e", ops(stream)).offset == 0
    reader = node.mint([f"stream.subscribe:stream:{TENANT}/{NAMESPACE}/{stream}"])
    with client_of(node, reader) as client:
        refused(felix.AuthError, lambda: client.commit(TENANT, NAMESPACE, b"e", ops(stream)))
        assert state(client, stream, b"e", "k") == (b"v", 0, 0)


@check
def the_asynchronous_client_commits_and_reads_alike(node: Node) -> None:
    stream = node.create_stream()
    op = felix.CommitOp

    async def talk() -> None:
        client = await felix.AsyncClient.connect(
            node.brokers,
            tenant_id=TENANT,
            token=node.token,
            server_name=node.server_name,
            ca_file=node.ca_file,
        )
        receipts = await asyncio.gather(
            *(
                client.commit(
                    TENANT,
                    NAMESPACE,
                    b"entity-%d" % number,
                    [op.publish(stream, b"%d" % number), op.put(stream, "k", b"%d" % number)],
                )
                for number in range(20)
            )
        )
        assert sorted(receipt.offset for receipt in receipts) == list(range(20))
        for number, receipt in enumerate(receipts):
            found = await client.state_get(TENANT, NAMESPACE, stream, b"entity-%d" % number, "k")
            assert (found.value, found.version) == (b"%d" % number, receipt.offset)
        try:
            await client.commit(TENANT, NAMESPACE, b"e", [op.put(stream, "k", b"v")])
        except felix.EventCountError as error:
            assert error.count == 0
        else:
            raise AssertionError("a commit without an event was taken")

    asyncio.run(talk())
