"""A container engine: the one that answers, or Debian's Docker engine started for this test alone."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

# Seconds an engine may take to answer after it was started.
START_WAIT = 60


class NoEngine(Exception):
    """None answers and none can be started here."""


@contextlib.contextmanager
def engine():
    """Yields the environment in which `docker` reaches an engine."""
    if answers(os.environ):
        yield dict(os.environ)
        return
    if os.geteuid() != 0:
        raise NoEngine("no engine answers, and only root can start one")
    if not shutil.which("dockerd"):
        raise NoEngine("no engine answers, and there is no dockerd (Debian: docker.io)")
    with tempfile.TemporaryDirectory(prefix="felix-engine-", ignore_cleanup_errors=True) as directory:
        place = Path(directory)
        environment = dict(os.environ, DOCKER_HOST=f"unix://{place}/docker.sock")
        with open(place / "log", "w") as log:
            process = subprocess.Popen(command(place), stdout=log, stderr=log, start_new_session=True)
        try:
            wait(process, environment, place / "log")
            yield environment
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def command(place):
    return [
        "dockerd",
        f"--data-root={place}/data",
        f"--exec-root={place}/exec",
        f"--pidfile={place}/pid",
        f"--host=unix://{place}/docker.sock",
    ]


def answers(environment):
    try:
        done = subprocess.run(
            ["docker", "info", "--format", "{{.ServerVersion}}"],
            env=environment, capture_output=True, text=True, timeout=30,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.strip() != ""


def wait(process, environment, log):
    end = time.monotonic() + START_WAIT
    while not answers(environment):
        if process.poll() is not None or time.monotonic() > end:
            raise NoEngine("dockerd does not start: " + " / ".join(log.read_text().splitlines()[-3:]))
        time.sleep(0.5)
