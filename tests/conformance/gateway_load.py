"""Measures one gateway: memory for each idle browser, and delays while 100,000 events a second reach 1,000 of them.

    python tests/conformance/gateway_load.py DIRECTORY_OF_OUR_PROGRAMS [idle] [readers per board] [boards] [rate]

Connections to the broker are shared, with certificates and delegated tokens, as many browsers need them to be.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

from browser import openssl
from browsers.front import World, gateway, subscriptions, world

# Each has as many browsers as stand for him; a person's sessions are bounded.
PEOPLE = 250

CERTIFICATE = """[v]
subjectAltName = URI:felix:principal:{principal}
basicConstraints = critical,CA:FALSE
extendedKeyUsage = clientAuth
"""


def own_identity(world: World) -> dict[str, str]:
    """What a gateway needs to share connections: a credential and a certificate."""
    directory = world.directory
    policy = {"subject": "role:gateways", "object": "tenant:dev", "action": "token.delegate"}
    world.node.request("POST", "/v1/tenants/dev/rbac/policies", policy)
    grouping = {"user": f"group:{world.provider.issuer}#gateways", "role": "role:gateways"}
    world.node.request("POST", "/v1/tenants/dev/rbac/groupings", grouping)
    credential = directory / "gateway.token"
    credential.write_text(world.provider.sign_in("gateway", groups=["gateways"]))
    credential.chmod(0o600)
    key, chain = directory / "gateway.key", directory / "gateway.pem"
    (directory / "extensions").write_text(CERTIFICATE.format(principal="gateway"))
    command = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
    openssl(*command, "-subj", "/CN=gateway", "-keyout", str(key), "-out", str(chain))
    return {
        "GATEWAY_FELIX_CREDENTIAL_FILE": str(credential),
        "GATEWAY_FELIX_CLIENT_CERT": str(chain),
        "GATEWAY_FELIX_CLIENT_KEY": str(key),
    }


def main() -> int:
    idle, readers, boards, rate = (int(word) for word in (sys.argv[2:] + ["5000", "100", "10", "100"][len(sys.argv) - 2 :]))
    with world() as everything:
        names = [everything.board() for _ in range(boards)]
        shared = own_identity(everything)
        with gateway(everything, rate=100_000, GATEWAY_PING_TIMEOUT_S="60", **shared) as front:
            token = everything.directory / "person.token"
            token.write_text("\n".join(everything.token(f"person-{number}") for number in range(PEOPLE)))
            before = subscriptions(everything)
            command = [pathlib.Path(sys.argv[1], "felix-e2e"), "browsers", "--gateway", front.address]
            command += ["--pid", str(front.process.pid), "--token-file", str(token), "--boards", ",".join(names)]
            command += ["--idle", str(idle), "--readers", str(readers), "--rate", str(rate)]
            status = subprocess.run(command, timeout=900).returncode
            print(f"subscriptions at the broker before: {before}", flush=True)
            if status:
                print(front.process.log.read_text(errors="replace")[:3000])
            return status


if __name__ == "__main__":
    raise SystemExit(main())
