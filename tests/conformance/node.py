"""Nodes of the tests' own, and the little that the tests need of the control plane's HTTP API.

A node is `felixctl dev`, or a control plane and a broker as two processes, set up as docs/OPERATING.md says.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Callable, Iterator

NAMES = itertools.count()
READY_SECONDS = 60.0
KINDS = (socket.SOCK_STREAM, socket.SOCK_DGRAM)


@dataclass
class Node:
    """How to reach a running node: the fields of its ready file, and its directory."""

    secret_file: pathlib.Path
    brokers: list[str]
    ca_file: str
    server_name: str
    tenant: str
    namespace: str
    token: str
    controlplane_url: str
    controlplane_token: str
    bootstrap_url: str
    kafka_bootstrap: str = ""
    broker_admin_url: str = ""
    pid: int = 0
    tenants: dict[str, str] = field(default_factory=dict)

    def create_stream(self, *, name: str | None = None, tenant: str = "dev", **settings) -> str:
        """Creates a stream with one shard that is durable, unless the settings say otherwise; gives its name."""
        name = name or f"stream-{next(NAMES)}"
        body = stream_of(name, settings)
        self.request("POST", f"/v1/tenants/{tenant}/namespaces/default/streams", body, tenant)
        return name

    def create_streams_together(self, count: int) -> list[str]:
        """Creates streams in one batch; gives their names."""
        names = [f"stream-{next(NAMES)}" for _ in range(count)]
        body = {"streams": [stream_of(name, {}) for name in names]}
        self.request("POST", f"/v1/tenants/{self.tenant}/namespaces/default/resources", body)
        return names

    def create_cache(self, *, name: str | None = None, **settings) -> str:
        """Creates a cache with one shard, unless the settings say otherwise; gives its name."""
        name = name or f"cache-{next(NAMES)}"
        self.request("POST", f"/v1/tenants/{self.tenant}/namespaces/default/caches", {"cache": name, **settings})
        return name

    def delete_stream(self, name: str) -> None:
        self.request("DELETE", f"/v1/tenants/{self.tenant}/namespaces/default/streams/{name}")

    def request(self, method: str, path: str, body: dict | None = None, tenant: str = "dev"):
        token = self.tenants.get(tenant, self.controlplane_token)
        return send(method, self.controlplane_url + path, body, {"Authorization": f"Bearer {token}"})

    def create_tenant(self, tenant: str, admin: str = "p:admin") -> None:
        """Creates a tenant with keys, an administrator and the namespace `default`, once."""
        if tenant in self.tenants:
            return
        self.bootstrap(tenant, "initialize", {"display_name": tenant, "initial_admin_principals": [admin]})
        wanted = {"principal": admin, "audience": "felix-controlplane", "ttl_seconds": 3600}
        answer = self.bootstrap(tenant, "dev-token", wanted)
        self.tenants[tenant] = answer["felix_token"]
        self.request("POST", f"/v1/tenants/{tenant}/namespaces", {"namespace": "default"}, tenant)

    def mint(self, permissions: list[str], *, tenant: str = "dev", seconds: int | None = None) -> str:
        """A token for brokers that is narrowed to these permissions."""
        principal = "p:dev" if tenant == self.tenant else "p:admin"
        body: dict = {"principal": principal}
        if permissions:
            body |= {"requested": [], "permissions": permissions}
        if seconds is not None:
            body["ttl_seconds"] = seconds
        return self.bootstrap(tenant, "dev-token", body)["felix_token"]

    def bootstrap(self, tenant: str, action: str, body: dict):
        secret = self.secret_file.read_text().strip()
        url = f"{self.bootstrap_url}/internal/bootstrap/tenants/{tenant}/{action}"
        return send("POST", url, body, {"X-Felix-Bootstrap-Token": secret})


def stream_of(name: str, settings: dict) -> dict:
    """What creates a durable stream with one shard, unless the settings say otherwise."""
    return {
        "stream": name,
        "kind": "Stream",
        "shards": 1,
        "retention": {"max_age_seconds": None, "max_size_bytes": None},
        "consistency": "Leader",
        "delivery": "AtLeastOnce",
        "durable": True,
        **settings,
    }


def send(method: str, url: str, body: dict | None, headers: dict[str, str]):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data=data, method=method, headers={"Content-Type": "application/json", **headers}
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{method} {url}: {error.code} {error.read().decode(errors='replace')}") from error
    return json.loads(text) if text else None


@contextlib.contextmanager
def start(quota: str | None = None, **more: str) -> Iterator[Node]:
    """Starts `felixctl dev` with directories of its own, waits until it is ready, and stops it at the end; `more` goes
    into its environment."""
    with scratch() as directory:
        environment = dict(more)
        if quota:
            environment["FELIX_TENANT_PUBLISH_QUOTAS"] = quota
        ready = directory / "ready.json"
        command = ["felixctl", "dev", "--data-dir", str(directory / "node"), "--ready-file", str(ready)]
        with running(directory, [*command, "--port-base", "0"], environment) as process:
            fields = wait_for(process, lambda: json.loads(ready.read_text()))
            known = {key: fields[key] for key in Node.__dataclass_fields__ if key in fields}
            yield Node(secret_file=directory / "node" / "bootstrap.secret", pid=process.pid, **known)


@contextlib.contextmanager
def start_separately(**more: str) -> Iterator[Node]:
    """Starts a control plane and a broker, each a process with a configuration of its own; `more` is for the control
    plane."""
    with scratch() as directory, contextlib.ExitStack() as stack:
        broker, broker_admin, api, api_admin, bootstrap = (f"127.0.0.1:{port}" for port in free_ports(5))
        secret, node_token = directory / "bootstrap.secret", directory / "node.token"
        private(secret, os.urandom(24).hex())
        certificate, key = directory / "localhost.pem", directory / "localhost.key"
        make_certificate(certificate, key)
        control_plane = {
            "FELIX_CONTROLPLANE_DATA_DIR": str(directory / "controlplane"),
            "FELIX_CONTROLPLANE_BIND": api,
            "FELIX_CONTROLPLANE_METRICS_BIND": api_admin,
            "FELIX_BOOTSTRAP_ENABLED": "true",
            "FELIX_BOOTSTRAP_BIND_ADDR": bootstrap,
            "FELIX_BOOTSTRAP_TOKEN_FILE": str(secret),
            "FELIX_BOOTSTRAP_DEV_TOKENS": "true",
            **more,
        }
        process = stack.enter_context(running(directory, ["felix-controlplane"], control_plane))
        wait_for(process, lambda: is_ready(api_admin))
        node = Node(
            secret_file=secret,
            brokers=[broker],
            ca_file=str(certificate),
            server_name="localhost",
            tenant="dev",
            namespace="default",
            token="",
            controlplane_url=f"http://{api}",
            controlplane_token="",
            bootstrap_url=f"http://{bootstrap}",
        )
        over = [{"subject": "role:broker", "object": "cluster:*", "action": f"node.{do}"} for do in ("view", "manage")]
        grouped = [{"user": "p:broker", "role": "role:broker"}]
        node.bootstrap("operators", "initialize", {"display_name": "operators", "policies": over, "groupings": grouped})
        wanted = {"principal": "p:broker", "audience": "felix-controlplane", "ttl_seconds": 3600}
        private(node_token, node.bootstrap("operators", "dev-token", wanted)["felix_token"])
        node.create_tenant("dev", "p:dev")
        node.controlplane_token, node.token = node.tenants["dev"], node.mint([])
        node.create_stream(name="orders")

        config = directory / "broker.toml"
        lines = {
            "listen": broker,
            "metrics_listen": broker_admin,
            "data_dir": directory / "broker",
            "controlplane_url": node.controlplane_url,
            "node_token_file": node_token,
            "tls_cert": certificate,
            "tls_key": key,
        }
        config.write_text("".join(f"{name} = {json.dumps(str(value))}\n" for name, value in lines.items()))
        process = stack.enter_context(running(directory, ["felix-broker", "--config", str(config)], {}))
        wait_for(process, lambda: is_ready(broker_admin))
        yield node


@contextlib.contextmanager
def scratch() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(prefix="felix-conformance-") as name:
        yield pathlib.Path(name)


@contextlib.contextmanager
def running(directory: pathlib.Path, command: list[str], variables: dict[str, str]) -> Iterator[subprocess.Popen]:
    """A program of the directory given on the command line; it is stopped at the end, and killed if it will not."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("FELIX_", "GATEWAY_"))}
    environment |= {"XDG_CONFIG_HOME": f"{directory}/config", "XDG_DATA_HOME": f"{directory}/data", **variables}
    program = pathlib.Path(sys.argv[1], command[0])
    with open(directory / f"{command[0]}.log", "wb") as log:
        process = subprocess.Popen(
            [program, *command[1:]], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    process.log = directory / f"{command[0]}.log"
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(process: subprocess.Popen, attempt: Callable):
    """What the attempt gives once it stops failing, as long as the process lives."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, json.JSONDecodeError):
            return attempt()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.05)
            break
    process.kill()
    raise SystemExit(f"{process.args} did not become ready:\n{process.log.read_text(errors='replace')}")


def is_ready(admin: str) -> bool:
    with urllib.request.urlopen(f"http://{admin}/ready", timeout=5) as answer:
        return answer.status == 200


def private(file: pathlib.Path, text: str) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
        handle.write(text)


def make_certificate(certificate: pathlib.Path, key: pathlib.Path) -> None:
    """A certificate for `localhost` that is its own root."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-addext", "basicConstraints=critical,CA:FALSE", "-days", "30"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)


def free_ports(count: int) -> list[int]:
    """Ports that nobody has, for TCP and UDP alike."""
    with contextlib.ExitStack() as stack:
        ports = []
        while len(ports) < count:
            tcp, udp = (stack.enter_context(socket.socket(socket.AF_INET, kind)) for kind in KINDS)
            udp.bind(("127.0.0.1", 0))
            with contextlib.suppress(OSError):
                tcp.bind(udp.getsockname())
                ports.append(udp.getsockname()[1])
        return ports
