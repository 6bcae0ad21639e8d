"""One log, whoever writes and whoever reads: kcat, felixctl, the published Python client, and Kafka's DumpLogSegments.

    python tests/kafka/interop.py DIRECTORY_OF_OUR_PROGRAMS [PART_OF_A_NAME]

Needs kcat, the package felix-client, and for the last check what tests/kafka/install puts into the directory that
$FELIX_KAFKA_CLIENTS names. Prints `N passed, N failed`.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import felix
import harness
import jvm
from harness import check


def kcat(node, *arguments: str, data: bytes = b"") -> bytes:
    command = ["kcat", "-b", node.kafka_bootstrap, "-m", "30", *arguments]
    done = subprocess.run(command, input=data, capture_output=True, timeout=90)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def read_with_kcat(node, topic: str) -> list[dict]:
    return [json.loads(line) for line in kcat(node, "-C", "-t", topic, "-e", "-q", "-o", "beginning", "-J").splitlines()]


def felixctl(node, *arguments: str, data: bytes = b"") -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FELIX_")}
    environment |= {
        "FELIX_BROKERS": ",".join(node.brokers), "FELIX_AUTH_TENANT": node.tenant, "FELIX_AUTH_TOKEN": node.token,
        "FELIX_CA_FILE": node.ca_file, "FELIX_SERVER_NAME": node.server_name, "FELIX_NAMESPACE": node.namespace,
        "XDG_CONFIG_HOME": str(node.secret_file.parent / "no-context"),
    }
    command = [str(pathlib.Path(sys.argv[1], "felixctl")), *arguments]
    done = subprocess.run(command, env=environment, input=data, capture_output=True, timeout=90)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout.decode()


def client_of(node) -> felix.Client:
    return felix.Client(
        node.brokers, tenant_id=node.tenant, token=node.token, server_name=node.server_name, ca_file=node.ca_file
    )


@check
def what_kcat_publishes_is_read_by_felixctl_with_key_headers_and_time(node):
    topic = node.create_stream()
    kcat(node, "-P", "-t", topic, "-K", ":", "-H", "h=a", "-H", "h=b", data=b"key:value")
    (theirs,) = read_with_kcat(node, topic)
    line = felixctl(node, "sub", topic, "--from", "earliest", "--count", "1", "-f", "%o|%k|%v|%h|%d\\n")
    assert line == f"0|key|value|h=a,h=b|{theirs['ts']}\n", line


@check
def what_felixctl_publishes_is_read_by_kcat_with_key_headers_and_time(node):
    topic = node.create_stream()
    felixctl(node, "pub", topic, "value", "-k", "key", "-H", "h=a", "-H", "g=b")
    line = felixctl(node, "sub", topic, "--from", "earliest", "--count", "1", "-f", "%d\\n")
    (found,) = read_with_kcat(node, topic)
    assert (found["key"], found["payload"], found["headers"]) == ("key", "value", ["h", "a", "g", "b"]), found
    assert found["ts"] == int(line) and found["offset"] == 0, found


@check
def the_published_python_client_reads_what_kcat_compresses_at_the_same_offsets(node):
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = node.create_stream()
        values = [f"{codec} {number} ".encode() * 20 for number in range(20)]
        kcat(node, "-P", "-t", topic, "-z", codec, data=b"\n".join(values))
        with client_of(node) as client:
            with client.subscribe(node.tenant, node.namespace, topic, start="earliest") as reader:
                events = [reader.next_event(timeout=30) for _ in values]
            assert [one.payload for one in events] == values, codec
            assert [one.offset for one in events] == list(range(len(values))), codec


@check
def kcat_reads_what_the_published_python_client_publishes_at_the_same_offsets(node):
    topic = node.create_stream()
    with client_of(node) as client:
        offsets = [client.publish(node.tenant, node.namespace, topic, f"value {number}".encode()) for number in range(5)]
    found = read_with_kcat(node, topic)
    assert [one["payload"] for one in found] == [f"value {number}" for number in range(5)]
    assert [one["offset"] for one in found] == offsets


@check
def kafkas_own_tool_reads_the_segments_that_clients_filled_compressed(node):
    if not jvm.is_there():
        print("SKIPPED: $FELIX_KAFKA_CLIENTS has no java/: see tests/kafka/install")
        return
    topic = node.create_stream()
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    for codec in codecs:
        values = b"\n".join(f"{codec} {number}".encode() * 30 for number in range(20))
        kcat(node, "-P", "-t", topic, "-z", codec, data=values)
    (log,) = node.secret_file.parent.glob(f"**/streams/**/{topic}@*/0/data/*.log")
    said = jvm.tool(f"{jvm.TOOLS}.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", str(log))
    lines = said.splitlines()
    batches = [line for line in lines if line.startswith("baseOffset: ")]
    found = [line.split("compresscodec: ")[1].split(" ")[0] for line in batches]
    assert set(found) == set(codecs) and all("isvalid: true" in line for line in batches), said
    payloads = [line.split("payload: ")[1] for line in lines if line.startswith("| offset: ")]
    assert payloads == [f"{codec} {number}" * 30 for codec in codecs for number in range(20)], said


if __name__ == "__main__":
    if not shutil.which("kcat"):
        print("SKIPPED: kcat is not installed")
        raise SystemExit(0)
    raise SystemExit(harness.main())
