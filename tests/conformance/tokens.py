"""Tokens that run out or are revoked under the published Python package. `pypi_client.py` runs these checks."""

from __future__ import annotations

import threading
from typing import Callable

import felix

from node import Node

TENANT, NAMESPACE = "dev", "default"
EVENT_SECONDS = 20.0
CHECKS: list[Callable[[Node], None]] = []


def check(function: Callable[[Node], None]) -> Callable[[Node], None]:
    CHECKS.append(function)
    return function


class Provider:
    """Tokens of two seconds, one after the other."""

    def __init__(self, node: Node):
        self.node = node
        self.minted = 0

    def __call__(self) -> str:
        self.minted += 1
        return self.node.mint([], seconds=2)


def client_of(node: Node, **token) -> felix.Client:
    return felix.Client(
        node.brokers, tenant_id=TENANT, server_name=node.server_name, ca_file=node.ca_file, **token
    )


@check
def a_subscription_outlives_its_tokens_and_neither_misses_nor_repeats(node: Node) -> None:
    stream = node.create_stream()
    provider = Provider(node)
    published, done = 0, threading.Event()

    def publish() -> None:
        nonlocal published
        with client_of(node, token=node.token) as writer:
            while not done.is_set():
                assert writer.publish(TENANT, NAMESPACE, stream, b"%d" % published) == published
                published += 1

    writing = threading.Thread(target=publish)
    seen = 0
    with client_of(node, token_provider=provider) as client:
        with client.subscribe(TENANT, NAMESPACE, stream, start="earliest") as reader:
            writing.start()
            try:
                # Several tokens run out under it.
                while provider.minted < 5:
                    event = reader.next_event(timeout=EVENT_SECONDS)
                    assert event is not None, f"ended after {seen} events"
                    assert (event.offset, event.payload) == (seen, b"%d" % seen), (event.offset, seen)
                    seen += 1
            finally:
                done.set()
                writing.join()
            while seen < published:
                event = reader.next_event(timeout=EVENT_SECONDS)
                assert event is not None and event.offset == seen, (event, seen)
                seen += 1


@check
def a_watch_outlives_its_tokens(node: Node) -> None:
    cache = node.create_cache()
    provider = Provider(node)
    with client_of(node, token=node.token) as writer, client_of(node, token_provider=provider) as client:
        everything = felix.CacheWatchFilter.prefix("")
        with client.watch_cache(TENANT, NAMESPACE, cache, everything) as watch:
            number = 0
            while provider.minted < 4:
                writer.cache_put(TENANT, NAMESPACE, cache, f"k{number}", b"%d" % number)
                change = watch.recv(timeout=EVENT_SECONDS)
                # Its word that the watch goes on elsewhere, which it does by itself.
                while isinstance(change, felix.CacheWatchShardMoved):
                    change = watch.recv(timeout=EVENT_SECONDS)
                assert change is not None and change.key == f"k{number}", (change, number)
                number += 1


@check
def a_publisher_comes_back_with_its_next_token(node: Node) -> None:
    stream = node.create_stream()
    provider = Provider(node)
    with client_of(node, token_provider=provider) as client:
        offsets, refusals = [], 0
        while provider.minted < 4:
            try:
                offsets.append(client.publish(TENANT, NAMESPACE, stream, b"x"))
            except (felix.AuthError, felix.ConnectionError):
                # Refused, or met by the end of its stream: nothing was written, and the next one goes out under
                # another token.
                refusals += 1
                assert refusals <= 2 * provider.minted, "it does not come back"
        assert offsets == list(range(len(offsets))), "a refused publish was written"


@check
def a_revoked_principals_subscription_raises_what_it_was_ended_with(node: Node) -> None:
    stream = node.create_stream()
    role = {"user": "p:revoked", "role": "role:reader-of-a-test"}
    rule = {"subject": role["role"], "object": f"stream:{TENANT}/*/*", "action": "stream.subscribe"}
    node.request("POST", f"/v1/tenants/{TENANT}/rbac/policies", rule)
    node.request("POST", f"/v1/tenants/{TENANT}/rbac/groupings", role)
    token = node.bootstrap(TENANT, "dev-token", {"principal": role["user"]})["felix_token"]
    with client_of(node, token=token) as client:
        with client.subscribe(TENANT, NAMESPACE, stream) as reader:
            node.request("DELETE", f"/v1/tenants/{TENANT}/rbac/groupings", role)
            try:
                event = reader.next_event(timeout=EVENT_SECONDS)
            except felix.AuthError as error:
                assert error.code == "revoked", error
            else:
                raise AssertionError(f"not ended, but {event!r}")
    try:
        client_of(node, token=token).close()
    except felix.FelixError as error:
        assert "revoked" in str(error), error
    else:
        raise AssertionError("a revoked token is welcome")
