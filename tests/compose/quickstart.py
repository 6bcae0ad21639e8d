"""compose.yaml from nothing, as a newcomer has it: images are built on a base made here, everything starts, and what
docs/guides/compose.md says works.

Run by itself, as root: python tests/compose/quickstart.py DIRECTORY_OF_OUR_PROGRAMS [PART_OF_A_NAME]

Prints `N passed, N failed`; ends with 77 where no engine can start. Grafana is in no place that this test may fetch from, so
it is left out unless FELIX_GRAFANA_ARCHIVE names an archive made by `docker save`.
"""

import contextlib
import faulthandler
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

import closed
import metrics
from engine import NoEngine, apart, configuration, engine, place
from images import base, base_archive, grafana, missing_programs, missing_tools, ready_made
from people import Closed, join, let_in
from stack import GRAFANA, SEEN_WAIT, SERVICES, Stack, privately, until

SKIPPED = 77
SECONDS_PER_TEST = 400
# A board's stream of edits, and what is drawn there.
BOARD, LINE = "board-plans-edits", "bGluZQ=="
INSIDE = "--inside"


def start(stack):
    """Everything, and what the guide says to do for programs of this machine and for people."""
    stack.up()
    for name, file in (("felix-ca.pem", "trust/ca.pem"), ("felixctl.key", "client/felixctl.key")):
        text = stack.run("run", "--rm", "-T", "--entrypoint", "cat", "felixctl", f"/etc/felix/{file}")
        privately(stack.directory / name, text)
    let_in(stack)


def test_how_to_connect_is_printed_at_the_end(stack):
    said = stack.run("logs", "--no-color", "settings")
    assert "Felix is ready" in said and "127.0.0.1:9092" in said and "http://127.0.0.1:8787" in said, said


def test_a_subscriber_prints_what_is_published(stack):
    with stack.following("sub", "orders") as saw:
        end = time.monotonic() + SEEN_WAIT
        while time.monotonic() < end:
            stack.felixctl("pub", "orders", "hello")
            # A subscriber that was not there yet sees the next one.
            if saw("hello", 3):
                return
    raise AssertionError("the subscriber printed nothing")


def test_a_stream_is_read_again_from_the_start(stack):
    for number in range(10):
        stack.installed("pub", "orders", f"again-{number}")
    replayed = stack.felixctl("sub", "orders", "--from", "earliest", "--count", "10")
    assert len(replayed.splitlines()) == 10, replayed
    assert "hello" in replayed.splitlines()[0], replayed


def test_a_watch_prints_what_is_put(stack):
    with stack.following("cache", "watch", "config") as saw:
        end = time.monotonic() + SEEN_WAIT
        while time.monotonic() < end:
            stack.felixctl("cache", "put", "config", "theme", "dark")
            if saw("dark", 3):
                return
    raise AssertionError("the watch printed nothing")


def test_a_counter_counts(stack):
    first = stack.felixctl("counter", "add", "stats", "page-views", "1")
    second = stack.felixctl("counter", "add", "stats", "page-views", "1")
    assert ("1" in first, "2" in second) == (True, True), (first, second)


def test_kafka_clients_read_and_write_the_same_log(stack):
    kcat(stack, "-P", "-t", "orders", "-K", ":", given="key:from kafka")
    assert "orders" in kcat(stack, "-L")
    values = in_kafka(stack)
    assert values[0] == "hello" and values[-1] == "from kafka", values
    assert values == everything(stack), values


def kcat(stack, *arguments, given=""):
    token = stack.installed("token", "show").strip()
    settings = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanisms=PLAIN", "sasl.username=dev", f"sasl.password={token}"]
    command = ["kcat", "-b", f"127.0.0.1:{stack.ports['KAFKA']}", "-m", "30"]
    command += [part for setting in settings for part in ("-X", setting)]
    done = subprocess.run(
        [*command, *arguments], env=stack.environment, input=given, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def everything(stack, stream="orders"):
    """The payloads of all records that a stream holds."""
    return stack.installed("read", stream, "--from", "earliest", "-f", "%v\\n").splitlines()


def test_browsers_share_a_board_through_the_gateway(stack):
    assert "<html" in stack.get("GATEWAY", "/").lower()
    with join(stack, "ann") as ann, join(stack, "bob") as bob:
        bob.say("subscribe", stream="edits", **{"from": "live"})
        bob.expect("subscribed", stream="edits")
        ann.say("publish", stream="edits", payload=LINE, ack=True, id=1)
        ann.expect("ack", id=1)
        assert bob.expect("event", stream="edits")["payload"] == LINE
    assert everything(stack, BOARD) == ["line"]


def test_the_ledger_is_in_postgresql(stack):
    before = ledger(stack)
    stack.installed("stream", "create", "ledger-check")
    assert before > 0 and ledger(stack) > before, (before, ledger(stack))


def ledger(stack):
    query = "select count(*) from felix_ledger_record"
    shell = f'PGPASSWORD=$(cat "$POSTGRES_PASSWORD_FILE") psql --host 127.0.0.1 felix felix -Atc "{query}"'
    return int(stack.run("exec", "-T", "postgres", "bash", "-c", shell))


def test_nothing_is_lost_when_each_service_restarts(stack):
    for service in SERVICES[1:]:
        before = stack.containers()[service]["State"]["Pid"]
        stack.installed("pub", "orders", f"before {service}")
        stack.run("restart", service)
        stack.wait_for(service, before)
        works(stack, f"after {service}")
    values = everything(stack)
    for service in SERVICES[1:]:
        wanted = [f"before {service}", f"after {service}"]
        assert [value for value in values if value in wanted] == wanted, values
    assert in_kafka(stack) == values


def works(stack, text):
    """Every way in and the catalogue work, each at the latest after some tries: who was cut off comes back by itself."""
    stream = text.replace(" ", "-")
    ways = {
        "a publish": lambda: text in everything(stack) or stack.installed("pub", "orders", text),
        "the catalogue": lambda: told(stack, "stream", "info", stream) or stack.installed("stream", "create", stream),
        "Kafka": lambda: in_kafka(stack)[-1] == text,
        "a browser": lambda: drawn(stack),
    }
    for name, way in ways.items():
        until(lambda way=way: tried(way), SEEN_WAIT, lambda name=name: f"{text}: {name} does not work")


def tried(way):
    """Whether it can be done now."""
    try:
        return way() is not False
    except (AssertionError, OSError, Closed, subprocess.TimeoutExpired):
        return False


def told(stack, *arguments):
    with contextlib.suppress(AssertionError):
        return stack.installed(*arguments)
    return None


def in_kafka(stack):
    return kcat(stack, "-C", "-t", "orders", "-e", "-q", "-o", "beginning").splitlines()


def drawn(stack):
    """Somebody joins the board and draws a line that is acknowledged."""
    with join(stack, "ann") as ann:
        ann.say("publish", stream="edits", payload=LINE, ack=True, id=1)
        ann.expect("ack", id=1)


def test_a_broker_that_is_killed_comes_back_with_everything(stack):
    before = everything(stack)
    pid = stack.containers()["broker"]["State"]["Pid"]
    subprocess.run(["kill", "-KILL", str(pid)], check=True)
    stack.wait_for("broker", pid)
    assert everything(stack) == before


def test_stop_and_up_restart_everything(stack):
    before = everything(stack)
    stack.run("stop")
    stack.up()
    assert everything(stack) == before
    assert in_kafka(stack) == before


def test_down_and_up_keep_the_data_and_ports_can_be_moved(stack):
    before, drawn_before = everything(stack), everything(stack, BOARD)
    stack.run("down")
    stack.move(BROKER=15000, KAFKA=19092, CONTROLPLANE=18443)
    stack.up()
    assert "127.0.0.1:19092" in stack.run("logs", "--no-color", "settings")
    assert everything(stack) == before
    assert in_kafka(stack) == before
    assert "dark" in stack.installed("cache", "get", "config", "theme")
    assert "3" in stack.felixctl("counter", "add", "stats", "page-views", "1")
    assert everything(stack, BOARD) == drawn_before


def test_down_with_v_throws_everything_away(stack):
    stack.run("down", "--volumes")
    label = f"label=com.docker.compose.project={stack.project}"
    left = subprocess.run(
        ["docker", "volume", "ls", "--quiet", "--filter", label], env=stack.environment, capture_output=True, text=True
    )
    assert (left.stdout, stack.ids()) == ("", [])


TESTS = [
    test_how_to_connect_is_printed_at_the_end,
    test_a_subscriber_prints_what_is_published,
    test_a_stream_is_read_again_from_the_start,
    test_a_watch_prints_what_is_put,
    test_a_counter_counts,
    test_kafka_clients_read_and_write_the_same_log,
    test_browsers_share_a_board_through_the_gateway,
    test_the_ledger_is_in_postgresql,
    *metrics.TESTS,
    *closed.TESTS,
    test_nothing_is_lost_when_each_service_restarts,
    test_a_broker_that_is_killed_comes_back_with_everything,
    test_stop_and_up_restart_everything,
    test_down_and_up_keep_the_data_and_ports_can_be_moved,
    test_down_with_v_throws_everything_away,
]


def run(directory, programs, archive, part):
    """Everything that needs the engine."""
    with engine(directory) as environment:
        base_image = base(environment, archive)
        images = {"FELIX_BASE_IMAGE": base_image, "FELIX_RUST_IMAGE": ready_made(environment, base_image, programs)}
        images |= {"FELIX_OIDC_ALLOW_PRIVATE": "true", "FELIX_OIDC_ALLOW_HTTP": "true"}
        stack = Stack(environment, programs, directory, images)
        stack.with_grafana = grafana(environment, GRAFANA)
        if not stack.with_grafana:
            print("SKIPPED: Grafana was NOT started: neither Debian nor a registry of packages has it, and no image of its maker's")
            print("         was given (FELIX_GRAFANA_ARCHIVE). Its datasource, its dashboard and all its queries are checked.")
        return all_tests(stack, part)


def all_tests(stack, part):
    went = [one("everything is built and starts", lambda: start(stack))]
    for test in TESTS if went == [True] else []:
        if part in test.__name__ and (stack.with_grafana or test not in metrics.OF_GRAFANA):
            went.append(one(test.__name__.removeprefix("test_").replace("_", " "), lambda test=test: test(stack)))
    if not all(went):
        with contextlib.suppress(Exception):
            print(stack.run("logs", "--no-color", "--tail", "40"))
    with contextlib.suppress(Exception):
        stack.run("down", "--volumes", "--timeout", "5")
    print(f"{went.count(True)} passed, {went.count(False)} failed", flush=True)
    return 0 if all(went) else 1


def one(name, test):
    """Whether it passed; says so, and how long it took."""
    began = time.monotonic()
    faulthandler.dump_traceback_later(SECONDS_PER_TEST, exit=True)
    try:
        test()
    except Exception:  # noqa: BLE001 - every kind of failure is one
        print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
        return False
    finally:
        faulthandler.cancel_dump_traceback_later()
    print(f"ok      {name} ({time.monotonic() - began:.1f} s)", flush=True)
    return True


def main():
    if sys.argv[1] == INSIDE:
        directory, programs, archive, part = sys.argv[2:]
        try:
            return run(Path(directory), Path(programs), Path(archive), part)
        except NoEngine as why:
            return skipped(why)
    programs, part = Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else ""
    if lacking := missing_programs(programs):
        print(f"{', '.join(lacking)} cannot be found in {programs}\n0 passed, 1 failed")
        return 1
    if os.geteuid() != 0:
        return skipped("only root can start one")
    if lacking := missing_tools():
        return skipped(f"{', '.join(lacking)} cannot be found")
    try:
        with place() as directory, configuration():
            archive = base_archive(directory)
            command = [sys.executable, __file__, INSIDE, str(directory), str(programs), str(archive), part]
            return apart(command, network=True)
    except NoEngine as why:
        return skipped(why)


def skipped(why):
    print(f"SKIPPED: compose.yaml was NOT tried, because no engine could be started here: {why}", flush=True)
    return SKIPPED


if __name__ == "__main__":
    sys.exit(main())
