"""A control plane, a broker and a listener with TLS, each a process of its own, and a provider that the tenant trusts."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import tempfile
import threading
import urllib.request
from typing import Iterator

import provider
from node import make_certificate, running, start_separately, wait_for

# How long a token lives that the listener gets in exchange.
LIFE_SECONDS = 30


@dataclasses.dataclass
class Secure:
    """Where clients connect, and what they log in with."""

    node: object
    kafka_bootstrap: str
    ca: str
    metrics: str
    provider: provider.Provider
    service_key: str

    @property
    def tenant(self) -> str:
        return self.node.tenant

    @property
    def token(self) -> str:
        return self.node.mint([], seconds=900)

    def at(self, mechanism: str, secret: str, **more) -> dict:
        """As clients in other languages are told it."""
        where = {"bootstrap": self.kafka_bootstrap, "ca": self.ca}
        return {**where, "mechanism": mechanism, "user": self.tenant, "secret": secret, **more}

    @contextlib.contextmanager
    def renewed_token(self) -> Iterator[str]:
        """A file with a token that lives shortly, and another one a third of its life later."""
        with tempfile.TemporaryDirectory() as directory:
            file, ended = pathlib.Path(directory, "token"), threading.Event()

            def write():
                fresh = file.with_suffix(".new")
                fresh.write_text(self.node.mint([], seconds=LIFE_SECONDS))
                fresh.rename(file)

            def keep_writing():
                while not ended.wait(LIFE_SECONDS / 3):
                    write()

            write()
            thread = threading.Thread(target=keep_writing, daemon=True)
            thread.start()
            yield str(file)
            ended.set()
            thread.join()

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=20) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


@contextlib.contextmanager
def start() -> Iterator[Secure]:
    with contextlib.ExitStack() as stack:
        idp = stack.enter_context(provider.start())
        node = stack.enter_context(start_separately(
            FELIX_CONTROLPLANE_OIDC_ALLOW_INSECURE_HTTP="true",
            FELIX_CONTROLPLANE_OIDC_ALLOW_PRIVATE_IDP="true",
            FELIX_EXCHANGE_TOKEN_TTL_SECONDS=str(LIFE_SECONDS),
        ))
        directory = node.secret_file.parent
        certificate, key = directory / "kafka.pem", directory / "kafka.key"
        make_certificate(certificate, key)
        config = directory / "kafka.toml"
        lines = {
            "listen": "127.0.0.1:0", "metrics_listen": "127.0.0.1:0", "brokers": node.brokers, "broker_ca": node.ca_file,
            "broker_name": node.server_name, "controlplane_url": node.controlplane_url,
            "node_token_file": str(directory / "node.token"), "tls_cert": str(certificate), "tls_key": str(key),
        }
        config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items()))
        process = stack.enter_context(running(directory, ["felix-kafka", "--config", str(config)], {}))
        ready = wait_for(process, lambda: said(process.log, "the Kafka listener is ready"))
        yield Secure(node, ready["address"], str(certificate), ready["metrics_address"], idp, set_up(node, idp))


def said(log: pathlib.Path, message: str) -> dict:
    """The fields of a line in a log; an OSError while it is not there."""
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("{") and (fields := json.loads(line)["fields"]).get("message") == message:
            return fields
    raise OSError(f"{message}: not yet")


def set_up(node, idp: provider.Provider) -> str:
    """Trusts the provider, and gives its people and a service account what the tenant's administrators have."""
    tenant, role = f"/v1/tenants/{node.tenant}", "role:tenant-admin"
    node.request("POST", f"{tenant}/idp-issuers", {"issuer": idp.issuer, "audiences": [provider.AUDIENCE]})
    node.request("POST", f"{tenant}/rbac/groupings", {"user": f"group:{idp.issuer}#writers", "role": role})
    node.request("POST", f"{tenant}/service-accounts", {"name": "worker"})
    node.request("POST", f"{tenant}/rbac/groupings", {"user": "sa:worker", "role": role})
    return node.request("POST", f"{tenant}/service-accounts/worker/keys", {})["key"]
