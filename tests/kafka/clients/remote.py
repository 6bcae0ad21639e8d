"""Clients in other languages: each is a program that is told one thing a line, and answers with one line.

A request is `{"do": verb, "at": where and as whom, ...}`, an answer `{"ok": ...}` or `{"error": text}`. What a row does is
written here once, in terms of the verbs, for all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import selectors
import subprocess
import time

from clients import rows
from clients.logins import Logins

HERE = pathlib.Path(__file__).resolve().parent
ANSWER_SECONDS = 90.0


def home(name: str) -> pathlib.Path | None:
    """Where tests/run put the program of a client; None when it did not."""
    told = os.environ.get("FELIX_KAFKA_CLIENTS")
    found = pathlib.Path(told, name) if told else None
    return found if found and found.exists() else None


class Failed(Exception):
    """What a client said instead of doing it."""


class Driver:
    """A running program."""

    def __init__(self, command: list[str], **environment: str):
        self.process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        self.read = b""

    def ask(self, verb: str, **arguments):
        request = {"do": verb, **{key: value for key, value in arguments.items() if value is not None}}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.line(verb))
        if "error" in answer:
            raise Failed(f"{verb}: {answer['error']}")
        return answer["ok"]

    def line(self, verb: str) -> bytes:
        deadline = time.monotonic() + ANSWER_SECONDS
        while b"\n" not in self.read:
            if not self.selector.select(max(0.0, deadline - time.monotonic())):
                raise Failed(f"{verb}: no answer after {ANSWER_SECONDS} s")
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            if not more:
                raise Failed(f"{verb}: the program ended with {self.process.wait()}")
            self.read += more
        line, self.read = self.read.split(b"\n", 1)
        return line

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.kill()


class Remote(Logins):
    """The rows, by way of a program. A client says with `LACKS` which of them its library has nothing for."""

    LACKS: frozenset[str] = frozenset()
    PROGRAM: list[str] = []
    ENVIRONMENT: dict[str, str] = {}

    def __init__(self, node):
        self.node = node
        self.at = {"bootstrap": node.kafka_bootstrap}
        self.driver = self.start()
        for row in self.LACKS:
            setattr(self, row, None)

    def start(self) -> Driver:
        return Driver(self.PROGRAM, **self.ENVIRONMENT)

    @classmethod
    def version(cls) -> str:
        with contextlib.closing(Driver(cls.PROGRAM, **cls.ENVIRONMENT)) as driver:
            return driver.ask("version")

    def close(self) -> None:
        self.driver.close()

    def ask(self, verb: str, **arguments):
        return self.driver.ask(verb, at=self.at, **arguments)

    def produce(self, topic: str, values=rows.VALUES, **settings):
        records = [value if isinstance(value, dict) else {"value": value.decode()} for value in values]
        return self.ask("produce", topic=topic, records=records, **settings)

    def read(self, topic: str, count: int, *, partition: int = 0, offset: int = 0):
        return self.ask("read", topic=topic, partition=partition, offset=offset, count=count)

    def reads_back(self, topic: str) -> None:
        found = self.read(topic, len(rows.VALUES))
        assert [one["value"].encode() for one in found] == rows.VALUES

    def produces(self, codec: str) -> None:
        topic = self.node.create_stream()
        self.produce(topic, codec=codec)
        assert rows.stored_codec(self.node, topic) == codec
        self.reads_back(topic)

    def lists_topics(self):
        topic = self.node.create_stream(shards=3)
        assert self.ask("topics")[topic] == 3

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
        self.produce(topic, idempotent=True)
        assert rows.producer_id(self.node, topic) >= 0
        self.reads_back(topic)

    def produces_with_every_acks(self):
        for acks in (0, 1, -1):
            topic = self.node.create_stream()
            self.produce(topic, acks=acks)
            rows.until(lambda: rows.count(self.node, topic) == len(rows.VALUES))

    def keeps_keys_headers_and_nulls(self):
        topic = self.node.create_stream()
        headers = [["h", "a"], ["h", "b"]]
        sent = [
            {"key": "key", "value": "value", "headers": headers, "time": 1234567890123},
            {"key": "gone", "value": None, "time": 1234567890124},
            {"value": "", "time": 1234567890125},
        ]
        self.produce(topic, sent)
        first, second, third = self.read(topic, 3)
        assert (first["key"], first["value"], first["time"]) == ("key", "value", 1234567890123), first
        assert first["headers"] == headers, first
        assert (second["key"], second["value"]) == ("gone", None), second
        assert (third["key"], third["value"]) == (None, ""), third

    def sees_the_times_of_the_broker(self):
        topic, before = self.node.create_stream(timestamps="append"), time.time() * 1000
        self.produce(topic, [{"value": "value", "time": 1234567890123}])
        found = self.read(topic, 1)[0]
        assert found["time"] >= before - 1000, found

    def sends_large_messages(self):
        topic = self.node.create_stream()
        self.produce(topic, [b"x" * 900_000])
        assert len(self.read(topic, 1)[0]["value"]) == 900_000

    def consumes_assigned(self):
        topic = self.node.create_stream(shards=2)
        self.produce(topic, [{"value": str(number), "partition": 1} for number in range(10)])
        found = self.read(topic, 7, partition=1, offset=3)
        assert [one["offset"] for one in found] == list(range(3, 10)), found

    def seeks_by_time(self):
        topic = self.node.create_stream()
        for at in (1000, 3000, 2000, 4000):
            self.produce(topic, [{"value": "v", "time": at}])
        found = self.ask("at_time", topic=topic, partition=0, time=2500)
        assert found == 1, found

    def sees_the_ends(self):
        topic = self.node.create_stream()
        self.produce(topic)
        found = self.ask("ends", topic=topic, partition=0)
        assert found == [0, len(rows.VALUES)], found

    # Groups.

    def join(self, topic: str, group: str, driver: Driver | None = None, **settings) -> "Member":
        return Member(driver or self.driver, self.at, topic, group, settings)

    def commits_and_resumes(self):
        self.resumes()

    def resumes(self, **settings):
        topic, group = self.node.create_stream(), rows.fresh("group")
        self.produce(topic)
        first = self.join(topic, group, **settings)
        rows.until(lambda: first.taken() >= 20)
        first.commit(topic, 20)
        first.leave()
        assert self.ask("committed", group=group, topic=topic, partition=0) == 20
        second = self.join(topic, group, **settings)
        rows.until(lambda: second.taken() >= 1)
        assert second.look()["first"] == 20, second.look()
        second.leave()

    def shares(self, **settings):
        """Two members that have two of four partitions each."""
        topic, group = self.node.create_stream(shards=4), rows.fresh("group")
        members = [self.join(topic, group, **settings) for _ in range(2)]
        settled(members, [2, 2])
        return members

    def shares_with_a_second_member(self):
        for member in self.shares():
            member.leave()

    def takes_over_from_one_that_leaves(self):
        stays, leaves = self.shares()
        leaves.leave()
        settled([stays], [4])
        stays.leave()

    def takes_over_from_one_that_dies(self):
        topic, group = self.node.create_stream(shards=4), rows.fresh("group")
        with contextlib.closing(self.start()) as other:
            stays = self.join(topic, group, session_ms=6000)
            dies = self.join(topic, group, other, session_ms=6000)
            settled([stays, dies], [2, 2])
            other.kill()
            settled([stays], [4])
            stays.leave()

    def keeps_its_place_as_static_member(self):
        topic, group = self.node.create_stream(shards=4), rows.fresh("group")
        # Long enough that a program that starts slowly is back in time.
        stays = self.join(topic, group, instance="there", session_ms=45_000)
        with contextlib.closing(self.start()) as other:
            static = self.join(topic, group, other, instance="here", session_ms=45_000)
            settled([stays, static], [2, 2])
            before, held = stays.look()["rebalances"], static.partitions()
            # Without a word: a static member that crashes keeps its place for a session.
            other.kill()
        static = self.join(topic, group, instance="here", session_ms=45_000)
        settled([stays, static], [2, 2])
        assert static.partitions() == held and stays.look()["rebalances"] == before
        for member in (stays, static):
            member.leave()

    def rebalances_cooperatively(self):
        topic, group = self.node.create_stream(shards=4), rows.fresh("group")
        first = self.join(topic, group, strategy="cooperative")
        settled([first], [4])
        second = self.join(topic, group, strategy="cooperative")
        settled([first, second], [2, 2])
        assert first.look()["revoked"] == 2, "only what moved was taken away"
        for member in (first, second):
            member.leave()

    @contextlib.contextmanager
    def a_member_that_committed(self, topic: str, group: str):
        member = self.join(topic, group)
        settled([member], [1])
        member.commit(topic, 1)
        yield member
        member.leave()

    def consumes_with_the_consumer_protocol(self):
        settings = {"strategy": "consumer"}
        self.resumes(**settings)
        stays, leaves = self.shares(**settings)
        leaves.leave()
        settled([stays], [4])
        stays.leave()

    # Administration.

    def creates_and_deletes_topics(self):
        topic = rows.fresh("topic")
        self.ask("create_topic", topic=topic, partitions=3)
        assert self.ask("topics")[topic] == 3
        try:
            self.ask("create_topic", topic=topic, partitions=3)
            raise AssertionError("it was made twice")
        except Failed as error:
            assert "exist" in str(error).lower(), error
        self.produce(topic)
        self.ask("delete_topic", topic=topic)
        assert topic not in self.ask("topics")

    def reads_and_changes_configs(self):
        topic = rows.fresh("topic")
        self.ask("create_topic", topic=topic, partitions=1, configs={"cleanup.policy": "compact"})
        assert self.ask("configs", topic=topic)["cleanup.policy"] == "compact"
        self.ask("set_config", topic=topic, name="retention.ms", value="60000")
        assert self.ask("configs", topic=topic)["retention.ms"] == "60000"

    def deletes_records(self):
        topic = self.node.create_stream()
        self.produce(topic)
        self.ask("delete_records", topic=topic, partition=0, offset=20)
        assert self.ask("ends", topic=topic, partition=0) == [20, len(rows.VALUES)]

    def describes_groups(self):
        topic, group = self.node.create_stream(), rows.fresh("group")
        member = self.join(topic, group)
        settled([member], [1])
        assert group in self.ask("groups")
        state, count = self.ask("describe_group", group=group)
        assert state.lower() == "stable" and count == 1, (state, count)
        member.commit(topic, 0)
        member.leave()
        self.ask("delete_group", group=group)
        assert group not in self.ask("groups")

    # Logging in.

    def as_whom(self, mechanism: str, secret: str):
        return {**self.at, "mechanism": mechanism, "user": self.node.tenant, "secret": secret}

    def logs_in_with_plain(self):
        assert "orders" in self.driver.ask("topics", at=self.as_whom("PLAIN", self.node.token))

    def logs_in_with_oauthbearer(self):
        assert "orders" in self.driver.ask("topics", at=self.as_whom("OAUTHBEARER", self.node.token))

    def is_refused_with_a_wrong_token(self):
        try:
            self.driver.ask("topics", at=self.as_whom("PLAIN", "nonsense"))
        except Failed as error:
            assert "auth" in str(error).lower(), error
        else:
            raise AssertionError("it was let in")


    def topics_as(self, at: dict):
        return self.driver.ask("topics", at=at)

    def works_as(self, at: dict, topic: str) -> None:
        """Once with what is given, and once with short tokens that the client fetches anew."""
        with self.secure.renewed_token() as file, contextlib.closing(self.start()) as driver:
            bearer = {"bootstrap": at["bootstrap"], "ca": at["ca"], "mechanism": "OAUTHBEARER", "secret_file": file}
            senders = {"with a key": at, "with tokens": bearer}
            for sender, where in senders.items():
                driver.ask("open", at=where, sender=sender)
            self.at_work(lambda: [driver.ask("send", sender=one, topic=topic, value="v") for one in senders])
            for sender in senders:
                driver.ask("shut", sender=sender)


class Member:
    """A member of a group in a program."""

    def __init__(self, driver: Driver, at: dict, topic: str, group: str, settings: dict):
        self.driver, self.name = driver, rows.fresh("member")
        driver.ask("join", at=at, member=self.name, topic=topic, group=group, **settings)

    def look(self):
        """Its partitions; how often it was given some; how many were taken away; what it has read."""
        return self.driver.ask("look", member=self.name)

    def partitions(self) -> list[int]:
        return sorted(self.look()["partitions"])

    def taken(self) -> int:
        return self.look()["taken"]

    def commit(self, topic: str, offset: int) -> None:
        self.driver.ask("commit", member=self.name, topic=topic, partition=0, offset=offset)

    def leave(self) -> None:
        self.driver.ask("leave", member=self.name)


def settled(members: list[Member], wanted: list[int]) -> None:
    """Waits until each has as many partitions as wanted, and no two have the same one."""

    def attempt():
        held = [member.partitions() for member in members]
        every = [one for share in held for one in share]
        return sorted(map(len, held)) == sorted(wanted) and len(every) == len(set(every))

    rows.until(attempt)
