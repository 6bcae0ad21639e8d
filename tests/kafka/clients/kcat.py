"""kcat as Debian has it, on the librdkafka of Debian."""

from __future__ import annotations

import json
import subprocess

from clients import rows
from clients.logins import Logins

TITLE = "kcat (Debian)"


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
