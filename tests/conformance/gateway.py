"""Drives the browser gateway with a WebSocket client written from the protocol's page alone: every message and every code
of version 1, and the features beyond it.

    python tests/conformance/gateway.py DIRECTORY_OF_OUR_PROGRAMS [words]

Starts `felixctl dev` for what lies behind, an identity provider of its own, and gateways in front; prints
`N passed, N failed`. Each check is a function whose name is the sentence that is true; with words, only those run whose
name holds one of them. They stand in `browsers/`, by subject.
"""

from __future__ import annotations

import faulthandler
import sys
import time
import traceback

# Each adds its checks as it is read.
from browsers import caches, ending, features, joining, refusals, sharing, streams  # noqa: F401
from browsers.front import CHECKS, world

SECONDS_PER_CHECK = 120


def main() -> int:
    passed = failed = 0
    wanted = sys.argv[2:]
    with world() as everything:
        for one in CHECKS:
            name = one.__name__.replace("_", " ")
            if wanted and not any(word in one.__name__ for word in wanted):
                continue
            began = time.monotonic()
            faulthandler.dump_traceback_later(SECONDS_PER_CHECK, exit=True)
            try:
                one(everything)
            except Exception:
                failed += 1
                print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
            else:
                passed += 1
                print(f"ok      {name} ({time.monotonic() - began:.2f} s)", flush=True)
            finally:
                faulthandler.cancel_dump_traceback_later()
        if failed:
            print(everything.gateway.process.log.read_text(errors="replace")[-8000:], flush=True)
    print(f"\n{passed} passed, {failed} failed", flush=True)
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
