"""compose.yaml from nothing: images are built on a base made here, everything starts, and the quickstart works.

Run by itself, as root: python tests/compose/quickstart.py [DIRECTORY WITH THE PROGRAMS]

No registry is asked. The base is a Debian by debootstrap that brings PostgreSQL and Prometheus; Grafana is not in
Debian, so it is left out unless its image is there.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from engine import NoEngine, engine

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "felix"
PROGRAMS = ["felix-controlplane", "felix-broker", "felix-kafka", "felix-gateway", "felixctl"]
INCLUDED = "ca-certificates,postgresql,prometheus"
SUITE = "bookworm"
GRAFANA = "docker.io/grafana/grafana:12.2.0"
# Seconds everything may take to be up, on a busy machine.
UP_WAIT = 300
# Seconds a record or a change may take to be shown, containers included that start for it.
SEEN_WAIT = 120


class Stack:
    """The composed services under a name of their own, on free ports."""

    def __init__(self, environment, ports):
        self.project = f"felix{os.getpid()}"
        self.ports = ports
        self.environment = environment | {f"FELIX_{name}_PORT": str(port) for name, port in ports.items()}
        self.compose = ["docker", "compose"] if has_plugin(environment) else ["docker-compose"]

    def command(self, *arguments):
        return [*self.compose, "--project-name", self.project, "--file", str(ROOT / "compose.yaml"), *arguments]

    def run(self, *arguments, timeout=UP_WAIT):
        done = subprocess.run(
            self.command(*arguments), cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=timeout,
        )
        if done.returncode != 0:
            raise AssertionError(f"{arguments}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return done.stdout

    def felixctl(self, *arguments):
        return self.run("run", "--rm", "-T", "felixctl", *arguments, timeout=SEEN_WAIT)

    @contextlib.contextmanager
    def following(self, *arguments):
        """A felixctl that goes on; yields a function that waits for a line with a word in it."""
        process = subprocess.Popen(
            self.command("run", "--rm", "-T", "felixctl", *arguments), cwd=ROOT, env=self.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        lines, changed = [], threading.Condition()

        def read():
            for line in process.stdout:
                with changed:
                    lines.append(line)
                    changed.notify_all()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()

        def saw(word, seconds):
            with changed:
                return changed.wait_for(lambda: any(word in line for line in lines), seconds)

        try:
            yield saw
        finally:
            process.terminate()
            process.wait(30)

    def get(self, name, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[name]}{path}", timeout=10) as answer:
            return answer.read().decode()


def has_plugin(environment):
    done = subprocess.run(["docker", "compose", "version"], env=environment, capture_output=True)
    return done.returncode == 0


def docker(environment, *arguments, **more):
    subprocess.run(["docker", *arguments], env=environment, check=True, **more)


def there(environment, image):
    return subprocess.run(["docker", "image", "inspect", image], env=environment, capture_output=True).returncode == 0


def base(environment):
    """A Debian as an image, kept as an archive for the next time."""
    archive = CACHE / f"base-{SUITE}-{INCLUDED.replace(',', '-')}.tar"
    if not archive.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, ignore_cleanup_errors=True) as directory:
            root = Path(directory) / "root"
            subprocess.run(
                ["debootstrap", "--variant=minbase", f"--include={INCLUDED}", SUITE, str(root)],
                check=True, stdout=subprocess.DEVNULL,
            )
            shutil.rmtree(root / "var/cache/apt/archives", ignore_errors=True)
            partial = Path(directory) / "base.tar"
            subprocess.run(["tar", "-C", str(root), "-cf", str(partial), "."], check=True)
            partial.rename(archive)
    docker(environment, "import", str(archive), "felix-test-base", stdout=subprocess.DEVNULL)
    return "felix-test-base"


def builder(environment, base_image, programs):
    """The base with the programs ready made: what the build of the image takes in place of a compiler."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "bin").mkdir()
        for name in PROGRAMS:
            subprocess.run(["strip", "-o", str(place / "bin" / name), str(programs / name)], check=True)
        (place / "Containerfile").write_text(f"FROM {base_image}\nCOPY bin/ /felix/bin/\n")
        docker(
            environment | {"DOCKER_BUILDKIT": "0"}, "build", "--quiet", "--tag", "felix-test-programs",
            "--file", str(place / "Containerfile"), str(place), stdout=subprocess.DEVNULL,
        )
    return "felix-test-programs"


def free_ports(names):
    """Ports that are free for TCP and UDP now; all are held until all are found."""
    ports, held = {}, []
    for name in names:
        tcp = socket.socket()
        tcp.bind(("127.0.0.1", 0))
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", tcp.getsockname()[1]))
        held += [tcp, udp]
        ports[name] = tcp.getsockname()[1]
    for one in held:
        one.close()
    return ports


def test_publish_and_subscribe(stack):
    with stack.following("sub", "orders") as saw:
        end = time.monotonic() + SEEN_WAIT
        while time.monotonic() < end:
            stack.felixctl("pub", "orders", "hello")
            # A subscriber that was not there yet sees the next one.
            if saw("hello", 3):
                return
    raise AssertionError("the subscriber printed nothing")


def test_replay_from_the_start(stack):
    for number in range(10):
        stack.felixctl("pub", "orders", f"again-{number}")
    replayed = stack.felixctl("sub", "orders", "--from", "earliest", "--count", "10")
    assert len(replayed.splitlines()) == 10, replayed
    assert "hello" in replayed.splitlines()[0], replayed


def test_watch_and_put(stack):
    with stack.following("cache", "watch", "config") as saw:
        end = time.monotonic() + SEEN_WAIT
        while time.monotonic() < end:
            stack.felixctl("cache", "put", "config", "theme", "dark")
            if saw("dark", 3):
                return
    raise AssertionError("the watch printed nothing")


def test_counter(stack):
    first = stack.felixctl("counter", "add", "stats", "page-views", "1")
    second = stack.felixctl("counter", "add", "stats", "page-views", "1")
    assert "1" in first and "2" in second, (first, second)


def test_prometheus_reaches_every_program(stack):
    jobs = {"controlplane", "broker", "kafka", "gateway"}
    end = time.monotonic() + SEEN_WAIT
    up = set()
    while up != jobs and time.monotonic() < end:
        targets = json.loads(stack.get("PROMETHEUS", "/api/v1/targets"))["data"]["activeTargets"]
        up = {one["labels"]["job"] for one in targets if one["health"] == "up"}
        time.sleep(1)
    assert up == jobs, up
    rules = json.loads(stack.get("PROMETHEUS", "/api/v1/rules"))["data"]["groups"]
    assert sum(len(group["rules"]) for group in rules) >= 10


def test_every_published_port_is_of_this_machine_alone(stack):
    ids = stack.run("ps", "-q").split()
    done = subprocess.run(["docker", "inspect", *ids], env=stack.environment, capture_output=True, text=True, check=True)
    bound = [
        one["HostIp"]
        for container in json.loads(done.stdout)
        for ports in (container["HostConfig"]["PortBindings"] or {}).values()
        for one in ports
    ]
    assert bound and set(bound) == {"127.0.0.1"}, bound


def test_what_was_published_outlives_down_and_up(stack):
    stack.run("down")
    up(stack)
    replayed = stack.felixctl("sub", "orders", "--from", "earliest", "--count", "1")
    assert "hello" in replayed, replayed


TESTS = [
    test_publish_and_subscribe,
    test_replay_from_the_start,
    test_watch_and_put,
    test_counter,
    test_prometheus_reaches_every_program,
    test_every_published_port_is_of_this_machine_alone,
    test_what_was_published_outlives_down_and_up,
]


def up(stack):
    services = ["gateway", "kafka", "prometheus"]
    if there(stack.environment, GRAFANA):
        services.append("grafana")
    else:
        print("SKIPPED: Grafana is not in Debian and its image is not here; tests/compose/catalogue.py checks its dashboard")
    stack.run("up", "--detach", *services)


def run(environment, programs):
    base_image = base(environment)
    images = {
        "FELIX_BASE_IMAGE": base_image,
        "FELIX_RUST_IMAGE": builder(environment, base_image, programs),
        "COMPOSE_DOCKER_CLI_BUILD": "0",
        "DOCKER_BUILDKIT": "0",
    }
    ports = free_ports(["BROKER", "CONTROLPLANE", "KAFKA", "GATEWAY", "PROMETHEUS", "GRAFANA"])
    stack = Stack(environment | images, ports)
    passed = failed = 0
    try:
        stack.run("build", "pod", "postgres", "prometheus", timeout=900)
        up(stack)
        for test in TESTS:
            try:
                test(stack)
                passed += 1
            except Exception as error:  # noqa: BLE001 - every kind of failure is one
                failed += 1
                print(f"{test.__name__}: {type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001
        failed += 1
        print(f"the services do not start: {error}")
    if failed:
        with contextlib.suppress(Exception):
            print(stack.run("logs", "--no-color", "--tail", "40"))
    with contextlib.suppress(Exception):
        stack.run("down", "--volumes", "--timeout", "5")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def main():
    programs = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(os.environ["CARGO_TARGET_DIR"]) / "debug"
    missing = [name for name in ["debootstrap", "docker", "strip"] if not shutil.which(name)]
    if missing:
        print(f"SKIPPED: {', '.join(missing)} cannot be found, so compose.yaml was NOT tried")
        return 0
    try:
        with engine() as environment:
            return run(environment, programs)
    except NoEngine as why:
        print(f"SKIPPED: compose.yaml was NOT tried: {why}")
        return 0


if __name__ == "__main__":
    sys.exit(main())
