"""kcat as Debian has it, on the librdkafka of Debian."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import tempfile
import time

from clients import rows
from clients.logins import Logins

TITLE = "kcat (Debian)"
PARTITION = re.compile(r"\[(\d+)\]")


class Member:
    """A kcat that reads as a member of a group until it is ended."""

    def __init__(self, node, group: str, topic: str, **settings):
        options = [part for key, value in settings.items() for part in ("-X", f"{key.replace('_', '.')}={value}")]
        self.said = tempfile.NamedTemporaryFile("rb", prefix="kcat-")
        with open(self.said.name, "wb") as file:
            self.process = subprocess.Popen(
                ["kcat", "-b", node.kafka_bootstrap, *options, "-G", group, topic], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=file,
            )

    def assignments(self) -> list[set[str]]:
        """What it was given, each time it was given something; `topic [0], topic [1]` stands in a line of its own."""
        self.said.seek(0)
        lines = [line for line in self.said.read().decode(errors="replace").splitlines() if "rebalanced" in line]
        return [set(PARTITION.findall(line)) if "assigned:" in line else set() for line in lines]

    def held(self) -> set[str]:
        return (self.assignments() or [set()])[-1]

    def leave(self) -> None:
        self.end(signal.SIGTERM)

    def die(self) -> None:
        self.end(signal.SIGKILL)

    def end(self, by: int) -> None:
        self.process.send_signal(by)
        self.process.wait(rows.PATIENCE)


def settled(members: list[Member], wanted: list[int]) -> None:
    rows.until(lambda: sorted(len(member.held()) for member in members) == sorted(wanted))


class Client(Logins):
    def __init__(self, node):
        self.node = node

    @staticmethod
    def version() -> str:
        shown = subprocess.run(["kcat", "-V"], capture_output=True, text=True).stdout
        words = shown.replace("(", " ").replace(",", " ").split()
        return f"{words[words.index('Version') + 1]}, librdkafka {words[words.index('librdkafka') + 1]}"

    def kcat(self, *arguments: str, data: bytes = b"", ok: bool = True) -> bytes:
        command = ["kcat", "-b", self.node.kafka_bootstrap, "-m", "30", *arguments]
        done = subprocess.run(command, input=data, capture_output=True, timeout=90)
        text = done.stderr.decode(errors="replace")
        assert (done.returncode == 0) == ok, f"{command}: {done.returncode}: {text}"
        return done.stdout if ok else done.stderr

    def produce(self, topic: str, *arguments: str) -> None:
        self.kcat("-P", "-t", topic, *arguments, data=b"\n".join(rows.VALUES))

    def consume(self, topic: str, *arguments: str) -> list[bytes]:
        return self.kcat("-C", "-t", topic, "-e", "-q", *arguments).splitlines()

    def produces(self, codec: str) -> None:
        topic = self.node.create_stream()
        self.produce(topic, "-z", codec)
        assert rows.stored_codec(self.node, topic) == codec
        assert self.consume(topic, "-o", "beginning") == rows.VALUES

    def lists_topics(self):
        topic = self.node.create_stream(shards=3)
        listed = json.loads(self.kcat("-L", "-J"))
        found = [one for one in listed["topics"] if one["topic"] == topic]
        assert found and len(found[0]["partitions"]) == 3, listed
        assert listed["brokers"][0]["name"] == self.node.kafka_bootstrap

    def produces_plain(self):
        self.produces("none")

    def produces_gzip(self):
        self.produces("gzip")

    def produces_snappy(self):
        self.produces("snappy")

    def produces_lz4(self):
        self.produces("lz4")

    def produces_zstd(self):
        self.produces("zstd")

    def produces_idempotent(self):
        topic = self.node.create_stream()
        self.produce(topic, "-X", "enable.idempotence=true")
        assert self.consume(topic, "-o", "beginning") == rows.VALUES

    def produces_with_every_acks(self):
        for acks in ("0", "1", "all"):
            topic = self.node.create_stream()
            self.produce(topic, "-X", f"acks={acks}")
            rows.until(lambda: rows.count(self.node, topic) == len(rows.VALUES))

    def keeps_keys_headers_and_nulls(self):
        topic = self.node.create_stream()
        self.kcat("-P", "-t", topic, "-K", ":", "-H", "h=a", "-H", "h=b", data=b"key:value")
        self.kcat("-P", "-t", topic, "-K", ":", "-Z", data=b"gone:")
        first, second = (json.loads(line) for line in self.consume(topic, "-o", "beginning", "-J"))
        assert (first["key"], first["payload"], first["headers"]) == ("key", "value", ["h", "a", "h", "b"])
        assert (second["key"], second["payload"]) == ("gone", None) and second["ts"] > 0

    def sees_the_times_of_the_broker(self):
        topic, before = self.node.create_stream(timestamps="append"), time.time() * 1000
        self.kcat("-P", "-t", topic, data=b"value")
        found = json.loads(self.consume(topic, "-o", "beginning", "-J")[0])
        assert found["tstype"] == "logappend" and found["ts"] >= before - 1000, found

    def sends_large_messages(self):
        topic = self.node.create_stream()
        large = b"x" * 900_000
        self.kcat("-P", "-t", topic, data=large)
        assert self.consume(topic, "-o", "beginning") == [large]

    def consumes_assigned(self):
        topic = self.node.create_stream(shards=2)
        self.kcat("-P", "-t", topic, "-p", "1", data=b"one\ntwo")
        assert self.consume(topic, "-p", "1", "-o", "beginning") == [b"one", b"two"]
        assert self.consume(topic, "-p", "1", "-o", "1") == [b"two"]
        assert self.consume(topic, "-p", "1", "-o", "-1") == [b"two"]

    def seeks_by_time(self):
        topic = self.node.create_stream()
        for value in (b"one", b"two"):
            self.kcat("-P", "-t", topic, data=value)
        times = [json.loads(line)["ts"] for line in self.consume(topic, "-o", "beginning", "-J")]
        assert self.consume(topic, "-o", f"s@{times[1]}")[-1] == b"two"

    def sees_the_ends(self):
        topic = self.node.create_stream()
        self.produce(topic)
        found = self.kcat("-Q", "-t", f"{topic}:0:-1").decode()
        assert f"offset {len(rows.VALUES)}" in found, found

    def commits_and_resumes(self):
        topic, group = self.node.create_stream(), rows.fresh("group")
        options = ("-X", "auto.offset.reset=earliest", "-e", "-q")
        self.kcat("-P", "-t", topic, data=b"one\ntwo")
        assert self.kcat(*options, "-G", group, topic).splitlines() == [b"one", b"two"]
        self.kcat("-P", "-t", topic, data=b"three")
        assert self.kcat(*options, "-G", group, topic).splitlines() == [b"three"]

    def two_members(self, first=None, second=None) -> list[Member]:
        topic, group = self.node.create_stream(shards=4), rows.fresh("group")
        members = [Member(self.node, group, topic, **(settings or {})) for settings in (first, second)]
        settled(members, [2, 2])
        return members

    def shares_with_a_second_member(self):
        for member in self.two_members():
            member.leave()

    def takes_over_from_one_that_leaves(self):
        stays, leaves = self.two_members()
        leaves.leave()
        settled([stays], [4])
        stays.leave()

    def takes_over_from_one_that_dies(self):
        settings = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 1000}
        stays, dies = self.two_members(settings, settings)
        dies.die()
        settled([stays], [4])
        stays.leave()

    def keeps_its_place_as_static_member(self):
        topic, group = self.node.create_stream(shards=4), rows.fresh("group")
        stays = Member(self.node, group, topic, group_instance_id="there")
        static = Member(self.node, group, topic, group_instance_id="here")
        settled([stays, static], [2, 2])
        before, held = len(stays.assignments()), static.held()
        static.die()
        static = Member(self.node, group, topic, group_instance_id="here")
        settled([stays, static], [2, 2])
        assert static.held() == held and len(stays.assignments()) == before
        for member in (stays, static):
            member.leave()

    def logs_in_with_plain(self):
        listed = self.kcat("-L", *self.plain(self.node.token))
        assert b"orders" in listed

    def is_refused_with_a_wrong_token(self):
        said = self.kcat("-L", "-m", "10", *self.plain("nonsense"), ok=False)
        assert b"uthentication" in said, said

    # librdkafka has it as Debian builds it, but kcat cannot give it a token; and it renews no login before 2.2.
    logs_in_with_a_provider = renews_its_login = None

    def topics_as(self, at: dict):
        settings = {
            "security.protocol": "sasl_ssl", "ssl.ca.location": at["ca"], "sasl.mechanism": at["mechanism"],
            "sasl.username": at["user"], "sasl.password": at["secret"],
        }
        options = [part for key, value in settings.items() for part in ("-X", f"{key}={value}")]
        done = subprocess.run(
            ["kcat", "-b", at["bootstrap"], "-m", "30", "-L", "-J", *options], capture_output=True, timeout=90
        )
        assert done.returncode == 0, done.stderr
        return [one["topic"] for one in json.loads(done.stdout)["topics"]]

    def plain(self, token: str) -> list[str]:
        settings = ("security.protocol=sasl_plaintext", "sasl.mechanism=PLAIN", f"sasl.username={self.node.tenant}")
        return [part for one in (*settings, f"sasl.password={token}") for part in ("-X", one)]
