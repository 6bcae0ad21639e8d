"""People in browsers: an identity provider beside the gateway, and sockets that join a board."""

import contextlib
import sys
from pathlib import Path

from engine import network_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))

from browser import Browser, Closed, Provider  # noqa: E402

__all__ = ["Closed", "join", "let_in"]

# Where compose.yaml expects a provider unless it is told another, and the client it is told there.
PORT, CLIENT = 9400, "felix-dev"
BOARD = [
    "--prefix", "board-", "--stream", "edits", "--memory-stream", "cursors", "--memory-cache", "presence",
    "--cache", "snapshot", "--cache", "seq",
]


def let_in(stack):
    """Starts a provider on the loopback address of the pod, where gateway and control plane find it, and lets its people
    in as the guide says."""
    with network_of(stack.containers()["pod"]["State"]["Pid"]):
        stack.provider = Provider(stack.directory, PORT)
    issuer = stack.provider.issuer
    stack.installed("idp", "add", issuer, "--audience", CLIENT)
    stack.installed("rbac", "policy", "add", "role:people", "namespace:dev/default", "ns.manage")
    stack.installed("rbac", "grouping", "add", f"group:{issuer}#people", "role:people")
    stack.installed("namespace", "template", "set", "board", *BOARD)


@contextlib.contextmanager
def join(stack, person, board="plans"):
    """A browser of this person on a board, once it is let in."""
    with Browser(f"127.0.0.1:{stack.ports['GATEWAY']}") as browser:
        browser.say("join", board=board, token=stack.provider.sign_in(person, groups=["people"], client=CLIENT))
        browser.expect("hello")
        yield browser
