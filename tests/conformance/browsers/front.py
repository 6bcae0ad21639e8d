"""What the checks of the browser gateway share: a node, an identity provider, a gateway in front, and boards."""

from __future__ import annotations

import contextlib
import itertools
import json
import pathlib
import socket
import struct
import subprocess
import time
from dataclasses import dataclass
from typing import Callable, Iterator

from browser import Browser, Closed, Provider, b64, get, provider
from node import Node, free_ports, running, scratch, start, wait_for

CHECKS: list[Callable[["World"], None]] = []
BOARDS = itertools.count()

SCOPE = """
{top}
[scope]
field = "board"

[[scope.streams]]
alias = "edits"
name = "board-{{scope}}-edits"
actions = ["publish", "subscribe"]

[[scope.streams]]
alias = "cursors"
name = "board-{{scope}}-cursors"
actions = ["publish", "subscribe"]
stamp_sender = true

[[scope.streams]]
alias = "news"
name = "board-{{scope}}-news"
actions = ["subscribe"]

[[scope.streams]]
alias = "secret"
name = "secret-{{scope}}"
actions = ["publish", "subscribe"]
optional = true

[[scope.streams]]
alias = "limited"
name = "board-{{scope}}-limited"
actions = ["publish"]
writes_per_s = 1
write_burst = 2

[[scope.caches]]
alias = "presence"
name = "board-{{scope}}-presence"
actions = ["read", "write", "watch"]
ttl_s = 15

[[scope.caches]]
alias = "brief"
name = "board-{{scope}}-brief"
actions = ["read", "write", "watch"]
ttl_s = 1

[[scope.caches]]
alias = "readonly"
name = "board-{{scope}}-readonly"
actions = ["read"]

[[scope.counters]]
alias = "seq"
name = "board-{{scope}}-seq"
actions = ["add"]

[limits]
max_payload_bytes = 4096
sessions_per_ip = {per_ip}
sessions_per_principal = {per_person}
[limits.session]
writes_per_s = {rate}
write_burst = {burst}
byte_burst = 1073741824
bytes_per_s = 1073741824
[limits.principal]
writes_per_s = {rate}
write_burst = {person_burst}
bytes_per_s = 1073741824
byte_burst = 1073741824
"""


@dataclass
class Gateway:
    address: str
    process: subprocess.Popen

    @property
    def url(self) -> str:
        return f"http://{self.address}"


@dataclass
class World:
    node: Node
    provider: Provider
    directory: pathlib.Path
    gateway: Gateway

    def token(self, person: str = "ann", **more) -> str:
        return self.provider.sign_in(person, groups=more.pop("groups", ["people"]), **more)

    def board(self, *, but: tuple[str, ...] = ()) -> str:
        """A board whose streams and caches exist, but those named."""
        board = f"b{next(BOARDS)}"
        for stream, durable in (("edits", True), ("cursors", False), ("news", True), ("limited", True)):
            if stream not in but:
                self.node.create_stream(name=f"board-{board}-{stream}", durable=durable)
        for cache in ("presence", "brief", "readonly", "seq"):
            if cache not in but:
                self.node.create_cache(name=f"board-{board}-{cache}")
        return board

    def join(self, board: str, person: str = "ann", features: tuple[str, ...] = (), gateway: Gateway | None = None) -> Browser:
        browser = Browser((gateway or self.gateway).address)
        more = {"features": list(features)} if features else {}
        browser.say("join", board=board, token=self.token(person), **more)
        browser.hello = browser.expect("hello")
        return browser

    def refused(self, gateway: Gateway | None = None, **join) -> tuple[dict, Closed]:
        """What a join is answered with that is refused, and how the socket is closed."""
        with Browser((gateway or self.gateway).address) as browser:
            browser.say("join", **join)
            return browser.hear(), browser.closed()


def check(function: Callable[[World], None]) -> Callable[[World], None]:
    CHECKS.append(function)
    return function


def publish(browser: Browser, payload: bytes, number: int) -> None:
    """Publishes and waits for the ack."""
    browser.say("publish", stream="edits", payload=b64(payload), ack=True, id=number)
    browser.expect("ack", id=number)


def assert_alive(browser: Browser) -> None:
    browser.say("counter_add", counter="seq", key="alive", delta=0, id=424242)
    browser.expect("counter", id=424242)


def beacon(world: World, at: Gateway | None = None, **body) -> tuple[int, bytes]:
    url = (at or world.gateway).url + "/members/leave"
    status, text, _ = get(url, json.dumps(body).encode(), **{"Content-Type": "text/plain"})
    return status, text


def subscriptions(world: World) -> int:
    """How many subscriptions the broker has, of everybody."""
    return gauge(world, "felix_broker_subscriptions")


def watches(world: World) -> int:
    """How many watches of caches the broker has, of everybody."""
    return gauge(world, "felix_cache_watches")


def gauge(world: World, name: str) -> int:
    text = get(world.node.broker_admin_url + "/metrics")[1].decode()
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return int(float(line.split()[1]))


def wait_until(look: Callable[[], int], wanted: int) -> int:
    deadline = time.monotonic() + 20
    while (found := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def delete_records(world: World, stream: str, *, before: int) -> None:
    """Deletes what lies below an offset, with the request that Kafka has for it."""
    host, port = world.node.kafka_bootstrap.rsplit(":", 1)
    name = stream.encode()
    body = struct.pack(f">ih{len(name)}siiqi", 1, len(name), name, 1, 0, before, 10_000)
    head = struct.pack(">hhih", 21, 1, 7, -1)
    with socket.create_connection((host, int(port)), 20) as kafka:
        kafka.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + struct.unpack(">i", answer[:4])[0]:
            answer += kafka.recv(4096)
    assert answer[-2:] == b"\0\0", f"Kafka's error {answer[-2:].hex()}"


@contextlib.contextmanager
def gateway(world: World, *, top: str = "", per_ip: int = 0, per_person: int = 0, rate: int = 5000, **more: str) -> Iterator[Gateway]:
    directory = world.directory / f"gateway-{next(BOARDS)}"
    directory.mkdir()
    (directory / "web").mkdir()
    (directory / "web" / "index.html").write_text("<p>here</p>")
    scope = directory / "scope.toml"
    # A hundred at once and twice that for a person are what holds by default.
    bursts = {"burst": max(rate, 100), "person_burst": max(2 * rate, 200)}
    scope.write_text(SCOPE.format(top=top, per_ip=per_ip, per_person=per_person, rate=rate, **bursts))
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    variables = {
        "GATEWAY_SCOPE_FILE": str(scope),
        "GATEWAY_TENANT": world.node.tenant,
        "GATEWAY_OIDC_CLIENT_ID": "page",
        "GATEWAY_OIDC_ISSUER": world.provider.issuer,
        "GATEWAY_LISTEN": address,
        "GATEWAY_FELIX_BROKERS": ",".join(world.node.brokers),
        "GATEWAY_FELIX_SERVER_NAME": world.node.server_name,
        "GATEWAY_FELIX_CA_FILE": world.node.ca_file,
        "GATEWAY_FELIX_CONTROL_PLANE": world.node.controlplane_url,
        "GATEWAY_WEB_DIR": str(directory / "web"),
        **more,
    }
    with running(directory, ["felix-gateway"], variables) as process:
        wait_for(process, lambda: get(f"http://{address}/oidc"))
        yield Gateway(address, process)


@contextlib.contextmanager
def world() -> Iterator[World]:
    allowed = {
        "FELIX_CONTROLPLANE_OIDC_ALLOW_INSECURE_HTTP": "true",
        "FELIX_CONTROLPLANE_OIDC_ALLOW_PRIVATE_IDP": "true",
    }
    with scratch() as directory, start(**allowed) as node, provider(directory) as idp:
        issuer = {"issuer": idp.issuer, "audiences": ["page"]}
        node.request("POST", f"/v1/tenants/{node.tenant}/idp-issuers", issuer)
        for over, actions in (
            ("stream:dev/default/board-*", ("stream.publish", "stream.subscribe")),
            ("cache:dev/default/*", ("cache.read", "cache.write")),
        ):
            for action in actions:
                policy = {"subject": "role:painters", "object": over, "action": action}
                node.request("POST", f"/v1/tenants/{node.tenant}/rbac/policies", policy)
        grouping = {"user": f"group:{idp.issuer}#people", "role": "role:painters"}
        node.request("POST", f"/v1/tenants/{node.tenant}/rbac/groupings", grouping)
        whole = World(node, idp, directory, None)
        with gateway(whole) as front:
            whole.gateway = front
            yield whole
