"""Kafka Connect with a file source and a file sink: alone, and as a cluster of one.

    python tests/kafka/connect.py DIRECTORY_OF_OUR_PROGRAMS [PART_OF_A_NAME]

Needs what tests/kafka/install puts into the directory that $FELIX_KAFKA_CLIENTS names. Prints `N passed, N failed`.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import tempfile
import urllib.error
import uuid

import harness
import jvm
from harness import check
from node import send

from clients.rows import until

WORKERS = "org.apache.kafka.connect.cli"
CONNECTORS = "org.apache.kafka.connect.file"
SECONDS = 110


def properties(file: pathlib.Path, /, **settings) -> pathlib.Path:
    file.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in settings.items()))
    return file


def worker(node, directory: pathlib.Path) -> dict[str, str]:
    text = "org.apache.kafka.connect.storage.StringConverter"
    return {
        "bootstrap_servers": node.kafka_bootstrap, "key_converter": text, "value_converter": text,
        "listeners": "http://127.0.0.1:0", "offset_flush_interval_ms": "500", "plugin_discovery": "only_scan",
        "plugin_path": directory,
    }


def source(topic: str, file: pathlib.Path) -> dict[str, str]:
    return {"connector_class": f"{CONNECTORS}.FileStreamSourceConnector", "tasks_max": "1", "topic": topic, "file": file}


def sink(topic: str, file: pathlib.Path) -> dict[str, str]:
    return {"connector_class": f"{CONNECTORS}.FileStreamSinkConnector", "tasks_max": "1", "topics": topic, "file": file}


def carried(into: pathlib.Path, lines: list[str], output: pathlib.Path) -> None:
    try:
        until(lambda: into.exists() and into.read_text().splitlines() == lines, SECONDS)
    except AssertionError as error:
        found = into.read_text() if into.exists() else None
        raise AssertionError(f"{found!r}\n{output.read_text(errors='replace')}") from error


@check
def a_worker_alone_carries_lines_from_file_to_file_and_goes_on_after_a_restart(node):
    topic = node.create_stream()
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(scratch)
        there, here = directory / "from.txt", directory / "to.txt"
        there.write_text("one\ntwo\n")
        files = (
            properties(directory / "worker", **worker(node, directory), offset_storage_file_filename=directory / "offsets"),
            properties(directory / "source", name="lines-in", **source(topic, there)),
            properties(directory / "sink", name=f"lines-out-{uuid.uuid4().hex[:6]}", **sink(topic, here)),
        )
        with jvm.running(directory, f"{WORKERS}.ConnectStandalone", *files) as output:
            carried(here, ["one", "two"], output)
        with open(there, "a") as file:
            file.write("three\n")
        with jvm.running(directory, f"{WORKERS}.ConnectStandalone", *files) as output:
            carried(here, ["one", "two", "three"], output)


@check
def a_cluster_of_workers_keeps_what_it_knows_in_compacted_topics(node):
    topic, name = node.create_stream(), uuid.uuid4().hex[:6]
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(scratch)
        there, here = directory / "from.txt", directory / "to.txt"
        there.write_text("one\ntwo\n")
        kept = {
            f"{what}_storage_{key}": value
            for what in ("config", "offset", "status")
            for key, value in (("topic", f"connect-{name}-{what}"), ("replication_factor", 1))
        }
        file = properties(directory / "worker", **worker(node, directory), **kept, group_id=f"connect-{name}")
        with jvm.running(directory, f"{WORKERS}.ConnectDistributed", file, info=True) as output:
            url = until(lambda: address(output), SECONDS)
            for what, settings in (("in", source(topic, there)), ("out", sink(topic, here))):
                config = {key.replace("_", "."): str(value) for key, value in settings.items()}
                body = {"name": f"lines-{what}-{name}", "config": config}
                until(lambda: posted(url, body), SECONDS)
            carried(here, ["one", "two"], output)
            status = send("GET", f"{url}connectors/lines-out-{name}/status", None, {})
            assert status["tasks"][0]["state"] == "RUNNING", status


def address(output: pathlib.Path) -> str | None:
    found = re.search(r"REST resources initialized; server is started and ready", output.read_text(errors="replace"))
    where = re.search(r"Advertised URI: (http://\S+)", output.read_text(errors="replace"))
    return where.group(1) if found and where else None


def posted(url: str, body: dict) -> bool:
    """The worker refuses while it joins its group."""
    with contextlib.suppress(AssertionError, urllib.error.URLError, TimeoutError):
        send("POST", f"{url}connectors", body, {})
        return True
    return False


if __name__ == "__main__":
    if not jvm.is_there():
        print("SKIPPED: $FELIX_KAFKA_CLIENTS has no java/: see tests/kafka/install")
        raise SystemExit(0)
    raise SystemExit(harness.main())
