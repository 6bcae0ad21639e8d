"""A node with a Kafka listener, and checks that run against it one by one."""

from __future__ import annotations

import faulthandler
import pathlib
import sys
import time
import traceback
from typing import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "conformance"))

from node import Node, start  # noqa: E402

SECONDS_PER_CHECK = 120
CHECKS: list[Callable[[Node], None]] = []


def check(function: Callable[[Node], None]) -> Callable[[Node], None]:
    CHECKS.append(function)
    return function


def run(checks: list[Callable[[Node], None]], node: Node) -> tuple[int, int]:
    passed = failed = 0
    for one in checks:
        began = time.monotonic()
        faulthandler.dump_traceback_later(SECONDS_PER_CHECK, exit=True)
        name = one.__name__.replace("_", " ")
        try:
            one(node)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            failed += 1
            print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
        else:
            passed += 1
            print(f"ok      {name} ({time.monotonic() - began:.2f} s)", flush=True)
        finally:
            faulthandler.cancel_dump_traceback_later()
    return passed, failed


def main() -> int:
    """Runs every check whose name has the second argument in it; all of them without one."""
    part = sys.argv[2] if len(sys.argv) > 2 else ""
    with start() as node:
        # What another script has of its own stays there when it is imported.
        own = [one for one in CHECKS if one.__module__ == "__main__"]
        passed, failed = run([one for one in own if part in one.__name__], node)
    print(f"\n{passed} passed, {failed} failed", flush=True)
    return 0 if failed == 0 else 1
