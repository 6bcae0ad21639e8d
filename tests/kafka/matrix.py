"""Drives the Kafka listener with clients as their makers publish them, and prints what works as a table.

    python tests/kafka/matrix.py DIRECTORY_OF_OUR_PROGRAMS [--write] [--only CLIENT,…] [--row ROW]

Needs kcat (Debian), the packages of tests/kafka/requirements.txt, and what tests/kafka/install builds of the clients in
other languages, in the directory that $FELIX_KAFKA_CLIENTS names; a client that is not there is left out and said to
be. `--write` puts the table into docs/kafka.md. The last line is `N passed, N failed`.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import faulthandler
import importlib
import pathlib
import shutil
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "conformance"))

from node import start  # noqa: E402

import secure  # noqa: E402
from clients import rows  # noqa: E402

CLIENTS = ("kcat", "confluent", "kafka_python", "aio", "kafkajs", "franz", "sarama", "java")
PAGE = HERE.parent.parent / "docs" / "kafka.md"
MARKS = ("<!-- matrix -->\n", "<!-- end -->")
SECONDS_PER_CELL = 150


def load(name: str):
    if name == "kcat" and not shutil.which("kcat"):
        print(f"SKIPPED {name}: it is not installed", flush=True)
        return None
    try:
        module = importlib.import_module(f"clients.{name}")
    except ModuleNotFoundError as error:
        print(f"SKIPPED {name}: {error}", flush=True)
        return None
    if getattr(module, "HOME", module) is None:
        print(f"SKIPPED {name}: $FELIX_KAFKA_CLIENTS does not have it", flush=True)
        return None
    return module


def in_turn(clients, row: str) -> list[str]:
    """A row, client by client."""
    found = []
    for client in clients:
        faulthandler.dump_traceback_later(SECONDS_PER_CELL, exit=True)
        found.append(cell(client, row))
        faulthandler.cancel_dump_traceback_later()
    return found


def everything(clients, wanted: list[str]) -> dict[str, list[str]]:
    """All rows; those that take long run for all clients at once while the others go on one by one."""
    with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
        meanwhile = {
            row: [pool.submit(cell, client, row) for client in clients] for row in wanted if row in rows.TOGETHER
        }
        cells = {row: in_turn(clients, row) for row in wanted if row not in rows.TOGETHER}
        faulthandler.dump_traceback_later(SECONDS_PER_CELL, exit=True)
        cells |= {row: [one.result() for one in running] for row, running in meanwhile.items()}
        faulthandler.cancel_dump_traceback_later()
    return cells


def cell(client, row: str) -> str:
    """`yes`, `no`, or a dash when the client has nothing of the kind or it is not tried."""
    attempt = getattr(client, row, None)
    if attempt is None:
        return "–"
    began = time.monotonic()
    try:
        attempt()
    except Exception:
        print(f"FAILED  {type(client).__module__}: {row}\n{traceback.format_exc()}", flush=True)
        return "no"
    print(f"ok      {type(client).__module__}: {row} ({time.monotonic() - began:.2f} s)", flush=True)
    return "yes"


def table(modules, cells) -> str:
    lines = ["| | " + " | ".join(f"{one.TITLE} {one.Client.version()}" for one in modules) + " |"]
    lines.append("|---" * (len(modules) + 1) + "|")
    for row, title in rows.ROWS.items():
        if row in cells:
            lines.append(f"| {title} | " + " | ".join(cells[row]) + " |")
    return "\n".join(lines) + "\n"


def write(text: str) -> None:
    page = PAGE.read_text()
    before, rest = page.split(MARKS[0])
    after = rest.split(MARKS[1], 1)[1]
    PAGE.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--row", default="")
    options = parser.parse_args()
    modules = [module for name in CLIENTS if any(one in name for one in options.only.split(",")) and (module := load(name))]
    if not modules:
        parser.error("no client of that name is installed")
    wanted = [row for row in rows.ROWS if options.row in row]
    with start() as node, secure.start() as safe:
        clients = [module.Client(node) for module in modules]
        for client in clients:
            client.secure = safe
        cells = everything(clients, wanted)
        for client in clients:
            getattr(client, "close", lambda: None)()
    text = table(modules, cells)
    print(f"\n{text}", flush=True)
    if options.write:
        write(text)
    all_cells = [one for row in cells.values() for one in row]
    failed = all_cells.count("no")
    print(f"{all_cells.count('yes')} passed, {failed} failed", flush=True)
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
