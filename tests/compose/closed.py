"""What a container is kept from: being root, writing to its image, ports of other machines, secrets of others."""

import json
import subprocess
from pathlib import Path

from engine import docker, inspect

NOBODY = 65532
# The service whose image is its maker's.
FOREIGN = "grafana"
# Volumes with secrets, and who may see them. The rest belongs to one service each.
SECRETS = {
    "secrets": {"pod", "controlplane", "install"},
    "database-password": {"pod", "postgres"},
    "install": {"install"},
    "broker-credentials": {"install", "broker"},
    "kafka-credentials": {"install", "kafka"},
    "client-credentials": {"install"},
}
# A line of a file that is shorter than this is no secret.
SECRET_LENGTH = 24


def test_every_process_is_an_ordinary_user_without_a_right_beyond(stack):
    for service, container in stack.containers().items():
        host = container["HostConfig"]
        assert (host["Privileged"], host["CapAdd"], host["CapDrop"]) == (False, None, ["ALL"]), (service, host)
        if not container["State"]["Running"]:
            continue
        processes = docker(stack.environment, "top", container["Id"], "-eo", "pid").split()[1:]
        assert processes
        for process in processes:
            # One that ended meanwhile has no file any more: a health check.
            if status := status_of(process):
                assert int(status["Uid"].split()[1]) == (472 if service == FOREIGN else NOBODY), (service, status)
                assert [int(status[kind], 16) for kind in ("CapPrm", "CapEff", "CapBnd", "CapAmb")] == [0] * 4, service
                assert status["NoNewPrivs"] == "1", service


def status_of(process):
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_no_container_can_write_to_its_image(stack):
    for service, container in stack.containers().items():
        assert container["HostConfig"]["ReadonlyRootfs"], service
        if container["State"]["Running"]:
            shell = "touch /usr/bin/x /etc/x /x"
            done = subprocess.run(
                ["docker", "exec", container["Id"], "sh", "-c", shell],
                env=stack.environment, capture_output=True, text=True,
            )
            assert done.returncode != 0 and done.stderr.count("Read-only file system") == 3, (service, done.stderr)


def test_every_published_port_is_of_this_machine_alone(stack):
    bound = [
        one["HostIp"]
        for container in stack.containers().values()
        for ports in (container["HostConfig"]["PortBindings"] or {}).values()
        for one in ports
    ]
    assert len(bound) == len(stack.ports) and set(bound) == {"127.0.0.1"}, bound


def test_a_secret_is_in_the_volumes_of_those_who_need_it_and_nowhere_else(stack):
    secrets = {volume: lines_of(stack, volume) for volume in SECRETS}
    assert all(secrets.values()), {volume: len(found) for volume, found in secrets.items()}
    everything = set.union(*secrets.values())
    for service, container in stack.containers().items():
        shown = json.dumps(container) + json.dumps(inspect(stack.environment, container["Image"]))
        shown += docker(stack.environment, "logs", container["Id"])
        assert not [secret for secret in everything if secret in shown], service
        mounted = {mount["Name"].removeprefix(f"{stack.project}_") for mount in container["Mounts"] if mount["Type"] == "volume"}
        assert {volume for volume in mounted & set(SECRETS) if service not in SECRETS[volume]} == set(), (service, mounted)


def lines_of(stack, volume):
    """What is secret in the files of a volume."""
    (volume,) = inspect(stack.environment, f"{stack.project}_{volume}")
    files = [file for file in Path(volume["Mountpoint"]).rglob("*") if file.is_file()]
    assert all(file.stat().st_mode & 0o077 == 0 for file in files), files
    texts = [file.read_text() for file in files if file.name not in ("ca.pem", "server.pem")]
    lines = {line.strip() for text in texts for line in text.splitlines() if not line.startswith("-----")}
    # The password is in the address of the database, too.
    lines |= {line.split("@")[0].rsplit(":", 1)[-1] for line in lines if line.startswith("postgres://")}
    return {line for line in lines if len(line) >= SECRET_LENGTH}


TESTS = [
    test_every_process_is_an_ordinary_user_without_a_right_beyond,
    test_no_container_can_write_to_its_image,
    test_every_published_port_is_of_this_machine_alone,
    test_a_secret_is_in_the_volumes_of_those_who_need_it_and_nowhere_else,
]
