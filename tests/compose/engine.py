"""A Docker engine for one test, in namespaces of its own: mounts, network, processes.

What it starts, mounts and routes is seen by nobody else, and the kernel takes all of it back when the test ends, however it
ends. An engine that runs on this machine already is not asked and not touched.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "felix"
# Seconds an engine may take to answer after it was started, and to stop.
START_WAIT, STOP_WAIT = 60, 30
# Bytes that images and containers take at most: with a driver that shares what is equal, and with one that copies.
ROOM, ROOM_OF_COPIES = 4 << 30, 30 << 30
# Each is tried in turn. Published ports pass through docker-proxy, so the second way is enough for this test.
WAYS = ([], ["--iptables=false", "--ip6tables=false"])


class NoEngine(Exception):
    """None can be started here, and why."""


@contextlib.contextmanager
def place():
    """A directory for all that an engine writes, and nothing of it afterwards. What killed runs left goes first."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "engines.lock", "w") as all_of_them:
        fcntl.flock(all_of_them, fcntl.LOCK_EX)
        for old in CACHE.glob("engine-*"):
            with open(old / "lock", "w") as lock, contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(old)
        directory = Path(tempfile.mkdtemp(prefix="engine-", dir=CACHE))
        lock = open(directory / "lock", "w")
        fcntl.flock(lock, fcntl.LOCK_EX)
    free = shutil.disk_usage(directory).free
    try:
        if free < ROOM:
            raise NoEngine(f"{free >> 20} MiB are free below {CACHE}, and {ROOM >> 20} are needed")
        yield directory
    finally:
        remove(directory)
        lock.close()


def remove(directory):
    # Processes that were killed may still be on their way out.
    for _ in range(20):
        subprocess.run(["rm", "-rf", str(directory)], capture_output=True)
        if not directory.exists():
            break
        time.sleep(0.5)
    for group in [*Path("/sys/fs/cgroup").glob(directory.name), *Path("/sys/fs/cgroup").glob(f"*/{directory.name}")]:
        for below, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(below)


def apart(command, *, network, **more):
    """Runs a command in namespaces of its own, where it is process 1. Everything in there ends with it, or with us.
    `network`: whether that is its own, too."""
    isolated = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--ipc", "--pid", "--fork", "--kill-child=KILL"]
    isolated += ["--mount-proc", *(["--net"] if network else []), "--"]
    tried = subprocess.run([*isolated, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        raise NoEngine(f"namespaces cannot be made here: {tried.stderr.strip()}")
    ends = {one: signal.signal(one, lambda number, _: sys.exit(128 + number)) for one in (signal.SIGTERM, signal.SIGHUP)}
    process = subprocess.Popen([*isolated, *command], stdin=subprocess.DEVNULL, **more)
    try:
        return process.wait()
    finally:
        process.kill()
        process.wait()
        for one, before in ends.items():
            signal.signal(one, before)


@contextlib.contextmanager
def configuration():
    """The folder for an engine's own key, which is hidden below another mount while one of ours runs."""
    folder = Path("/etc/docker")
    made = not folder.exists()
    folder.mkdir(exist_ok=True)
    try:
        yield
    finally:
        if made:
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextlib.contextmanager
def engine(directory):
    """Starts an engine; only for a process that runs apart. Yields the environment in which `docker` reaches it."""
    for over in ("/run", "/etc/docker"):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", over], check=True)
    loopback_up()
    for name in ("client", "tmp"):
        (directory / name).mkdir()
    (directory / "daemon.json").write_text("{}")
    theirs = ("DOCKER_", "COMPOSE_", "BUILDKIT_", "FELIX_")
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(theirs) and not key.lower().endswith("_proxy")
    } | {
        "DOCKER_HOST": "unix:///run/docker.sock",
        "DOCKER_CONFIG": str(directory / "client"),
        "TMPDIR": str(directory / "tmp"),
        # The builder that every engine has.
        "DOCKER_BUILDKIT": "0",
        "COMPOSE_DOCKER_CLI_BUILD": "0",
    }
    process = start(directory, environment)
    try:
        driver = said(environment, "info", "--format", "{{.Driver}}")
        free = shutil.disk_usage(directory).free
        if driver == "vfs" and free < ROOM_OF_COPIES:
            raise NoEngine(f"its driver is {driver}, which needs {ROOM_OF_COPIES >> 30} GiB; {free >> 30} are free")
        yield environment
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_WAIT)


def start(directory, environment):
    log = directory / "log"
    for way in WAYS:
        with open(log, "w") as output:
            process = subprocess.Popen([*command(directory), *way], stdout=output, stderr=output)
        end = time.monotonic() + START_WAIT
        while process.poll() is None and time.monotonic() < end:
            if said(environment, "version", "--format", "{{.Server.Version}}"):
                return process
            time.sleep(0.2)
        process.kill()
        process.wait()
    raise NoEngine("dockerd does not start: " + " / ".join(log.read_text().splitlines()[-3:]))


def command(directory):
    return [
        "dockerd",
        f"--config-file={directory}/daemon.json",
        f"--data-root={directory}/data",
        "--exec-root=/run/docker",
        "--pidfile=/run/docker.pid",
        "--host=unix:///run/docker.sock",
        "--exec-opt=native.cgroupdriver=cgroupfs",
        f"--cgroup-parent=/{directory.name}",
        "--log-level=warn",
    ]


def said(environment, *arguments):
    """What docker says; nothing if it fails."""
    try:
        done = subprocess.run(["docker", *arguments], env=environment, capture_output=True, text=True, timeout=30)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def docker(environment, *arguments):
    """What docker says; it has to succeed."""
    done = subprocess.run(["docker", *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"docker {arguments}: {done.stderr[-2000:]}"
    return done.stdout


def inspect(environment, *things):
    return json.loads(docker(environment, "inspect", *things))


@contextlib.contextmanager
def network_of(process):
    """Sockets that are made meanwhile are made in the network of this process. Accepting on them works afterwards, too."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(file):
        if libc.setns(file.fileno(), 0x40000000) != 0:  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), "setns")

    with open("/proc/self/ns/net") as own, open(f"/proc/{process}/ns/net") as other:
        enter(other)
        try:
            yield
        finally:
            enter(own)


def loopback_up():
    up_and_running, set_flags = 0x1 | 0x40, 0x8914
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh14x", b"lo", up_and_running))
