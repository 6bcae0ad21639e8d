"""Kafka's own programs for Java, as processes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import time
from typing import Iterator

HOME = pathlib.Path(os.environ.get("FELIX_KAFKA_CLIENTS", "/nonexistent"), "java")
# A tool's life is short: compiling it well costs more than it saves.
OPTIONS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
SECONDS = 100
TOOLS = "org.apache.kafka.tools"


def is_there() -> bool:
    return (HOME / "classpath").exists()


def command(main: str, *arguments: str) -> list[str]:
    return ["java", *OPTIONS, "-cp", (HOME / "classpath").read_text().strip(), main, *map(str, arguments)]


def tool(main: str, *arguments: str, data: bytes = b"", ok: bool = True) -> str:
    """What a tool prints when it runs to its end."""
    name = main.rsplit(".", 1)[1]
    done = subprocess.run(command(main, *arguments), input=data, capture_output=True, timeout=SECONDS)
    said, wrong = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    assert (done.returncode == 0) == ok, f"{name} {arguments}: {done.returncode}\n{said}\n{wrong}"
    return said if ok else said + wrong


@contextlib.contextmanager
def running(directory: pathlib.Path, main: str, *arguments: str, info: bool = False) -> Iterator[pathlib.Path]:
    """A tool that is ended by us; gives the file with what it prints, everyday things too if asked for."""
    output = directory / f"{main.rsplit('.', 1)[1]}-{time.monotonic_ns()}.out"
    told = command(main, *arguments)
    if info:
        told.insert(1, "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.connect.runtime.rest=info")
    with open(output, "wb") as file:
        process = subprocess.Popen(told, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        yield output
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
