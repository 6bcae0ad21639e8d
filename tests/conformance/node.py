"""A `felixctl dev` of the tests' own, and the little that the tests need of the control plane's HTTP API."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Iterator

NAMES = itertools.count()
READY_SECONDS = 60.0


@dataclass
class Node:
    """How to reach a running node: the fields of its ready file, and its directory."""

    directory: pathlib.Path
    brokers: list[str]
    ca_file: str
    server_name: str
    tenant: str
    namespace: str
    token: str
    controlplane_url: str
    controlplane_token: str
    bootstrap_url: str
    tenants: dict[str, str] = field(default_factory=dict)

    def create_stream(self, *, name: str | None = None, tenant: str = "dev", **settings) -> str:
        """Creates a stream with one shard that is durable, unless the settings say otherwise; gives its name."""
        name = name or f"stream-{next(NAMES)}"
        body = {
            "stream": name,
            "kind": "Stream",
            "shards": 1,
            "retention": {"max_age_seconds": None, "max_size_bytes": None},
            "consistency": "Leader",
            "delivery": "AtLeastOnce",
            "durable": True,
            **settings,
        }
        self.request("POST", f"/v1/tenants/{tenant}/namespaces/default/streams", body, tenant)
        return name

    def delete_stream(self, name: str) -> None:
        self.request("DELETE", f"/v1/tenants/{self.tenant}/namespaces/default/streams/{name}")

    def request(self, method: str, path: str, body: dict | None = None, tenant: str = "dev"):
        token = self.controlplane_token if tenant == self.tenant else self.tenants[tenant]
        return send(method, self.controlplane_url + path, body, {"Authorization": f"Bearer {token}"})

    def create_tenant(self, tenant: str) -> None:
        """Creates a tenant with keys, an administrator and the namespace `default`, once."""
        if tenant in self.tenants:
            return
        self.bootstrap(tenant, "initialize", {"display_name": tenant, "initial_admin_principals": ["p:admin"]})
        answer = self.bootstrap(tenant, "dev-token", {"principal": "p:admin", "audience": "felix-controlplane"})
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
        secret = (self.directory / "bootstrap.secret").read_text().strip()
        url = f"{self.bootstrap_url}/internal/bootstrap/tenants/{tenant}/{action}"
        return send("POST", url, body, {"X-Felix-Bootstrap-Token": secret})


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
def start(quota: str | None = None) -> Iterator[Node]:
    """Starts a node with directories of its own, waits until it is ready, and stops it at the end."""
    felixctl = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="felix-conformance-") as name:
        directory = pathlib.Path(name)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FELIX_")}
        environment |= {"XDG_CONFIG_HOME": f"{name}/config", "XDG_DATA_HOME": f"{name}/data"}
        if quota:
            environment["FELIX_TENANT_PUBLISH_QUOTAS"] = quota
        ready = directory / "ready.json"
        command = [felixctl, "dev", "--data-dir", f"{name}/node", "--ready-file", str(ready)]
        command += ["--port-base", "0"]
        with open(directory / "log", "wb") as log:
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            fields = wait_until_ready(process, ready, directory / "log")
            known = {key: fields[key] for key in Node.__dataclass_fields__ if key in fields}
            yield Node(directory=directory / "node", **known)
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until_ready(process: subprocess.Popen, ready: pathlib.Path, log: pathlib.Path) -> dict:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            return json.loads(ready.read_text())
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.05)
            break
    process.kill()
    raise SystemExit(f"felixctl dev did not become ready:\n{log.read_text(errors='replace')}")
