"""kafka-python from PyPI: pure Python, sessions of fetches, versions up to the newest."""

from __future__ import annotations

import threading
import time

import kafka
from clients import rows
from clients.logins import Logins
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.net.sasl.oauth import AbstractTokenProvider

TITLE = "kafka-python"


class Bearer(AbstractTokenProvider):
    """Gives a token as it was given."""

    def __init__(self, at: dict):
        super().__init__()
        self.at = at

    def token(self) -> str:
        return self.at["secret"]

    def extensions(self) -> dict[str, str]:
        return self.at.get("extensions", {})


class Member:
    """A consumer that is polled by a thread of its own, as members are in life: one that waits for the others of its
    group would keep them waiting otherwise."""

    def __init__(self, consumer: KafkaConsumer):
        self.consumer, self.held, self.ends = consumer, set(), False
        self.thread = threading.Thread(target=self.poll, daemon=True)
        self.thread.start()

    def poll(self) -> None:
        while not self.ends:
            self.consumer.poll(timeout_ms=200)
            self.held = self.consumer.assignment()
        self.consumer.close()

    def generation(self) -> int:
        return self.consumer.group_metadata().generation_id

    def close(self) -> None:
        self.ends = True
        self.thread.join(rows.PATIENCE)


def settled(members: list[Member], wanted: list[int]) -> None:
    """Waits until each has as many partitions as wanted."""
    rows.until(lambda: sorted(len(member.held) for member in members) == sorted(wanted))


class Client(Logins):
    def __init__(self, node):
        self.node = node
        self.base = {"bootstrap_servers": node.kafka_bootstrap}

    @staticmethod
    def version() -> str:
        return kafka.__version__

    def produce(self, topic: str, values=rows.VALUES, **settings) -> None:
        producer = KafkaProducer(**self.base, linger_ms=20, **settings)
        sent = [producer.send(topic, value) for value in values]
        producer.flush(60)
        for one in sent:
            one.get(30)
        producer.close()

    def consumer(self, group: str | None = None, **settings) -> KafkaConsumer:
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings}
        return KafkaConsumer(**self.base, group_id=group, **settings)

    def read(self, topic: str, count: int, *, partition: int = 0, offset: int = 0):
        consumer, place = self.consumer(), TopicPartition(topic, partition)
        consumer.assign([place])
        consumer.seek(place, offset)
        found = []
        rows.until(lambda: found.extend(self.polled(consumer)) or len(found) >= count)
        consumer.close()
        return found[:count]

    @staticmethod
    def polled(consumer):
        return [one for batch in consumer.poll(timeout_ms=300).values() for one in batch]

    def produces(self, codec: str | None) -> None:
        topic = self.node.create_stream()
        self.produce(topic, compression_type=codec)
        assert rows.stored_codec(self.node, topic) == (codec or "none")
        assert [one.value for one in self.read(topic, len(rows.VALUES))] == rows.VALUES

    def lists_topics(self):
        topic = self.node.create_stream(shards=3)
        consumer = self.consumer()
        assert topic in consumer.topics() and len(consumer.partitions_for_topic(topic)) == 3
        consumer.close()

    def produces_plain(self):
        self.produces(None)

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
        self.produce(topic, enable_idempotence=True)
        assert [one.value for one in self.read(topic, len(rows.VALUES))] == rows.VALUES

    def produces_with_every_acks(self):
        for acks in (0, 1, "all"):
            topic = self.node.create_stream()
            self.produce(topic, acks=acks, enable_idempotence=False)
            rows.until(lambda: rows.count(self.node, topic) == len(rows.VALUES))

    def keeps_keys_headers_and_nulls(self):
        topic = self.node.create_stream()
        producer = KafkaProducer(**self.base)
        producer.send(topic, b"value", b"key", headers=[("h", b"a"), ("h", b"b")], timestamp_ms=1234567890123).get(30)
        producer.send(topic, None, b"gone").get(30)
        producer.close()
        first, second = self.read(topic, 2)
        assert [(name, value) for name, value in first.headers] == [("h", b"a"), ("h", b"b")]
        assert (first.key, first.timestamp) == (b"key", 1234567890123)
        assert (second.key, second.value) == (b"gone", None)

    def sees_the_times_of_the_broker(self):
        topic, before = self.node.create_stream(timestamps="append"), int(time.time() * 1000)
        producer = KafkaProducer(**self.base)
        acked = producer.send(topic, b"value", timestamp_ms=1).get(30)
        producer.close()
        found = self.read(topic, 1)[0]
        assert found.timestamp_type == 1 and found.timestamp >= before - 1000, found
        assert acked.timestamp == found.timestamp, acked

    def is_slowed_by_a_quota(self):
        with rows.slow_topic(self.node) as topic:
            producer = KafkaProducer(**self.base)

            def sent():
                producer.send(topic, b"x" * 10_000).get(60)
                found = producer.metrics()
                slowed = [of["throttle-time-max"] for of in found.values() if "throttle-time-max" in of]
                return any(one > 0 for one in slowed)

            rows.until(sent)
            producer.close()

    def sends_large_messages(self):
        topic = self.node.create_stream()
        self.produce(topic, [b"x" * 900_000])
        assert len(self.read(topic, 1)[0].value) == 900_000

    def consumes_assigned(self):
        topic = self.node.create_stream(shards=2)
        producer = KafkaProducer(**self.base)
        for number in range(10):
            producer.send(topic, str(number).encode(), partition=1).get(30)
        producer.close()
        assert [one.offset for one in self.read(topic, 7, partition=1, offset=3)] == list(range(3, 10))

    def seeks_by_time(self):
        topic, place = self.node.create_stream(), None
        place = TopicPartition(topic, 0)
        producer = KafkaProducer(**self.base)
        for at in (1000, 3000, 2000, 4000):
            producer.send(topic, b"v", timestamp_ms=at).get(30)
        producer.close()
        consumer = self.consumer()
        found = consumer.offsets_for_times({place: 2500})[place]
        assert (found.offset, found.timestamp) == (1, 3000), found
        consumer.close()

    def sees_the_ends(self):
        topic = self.node.create_stream()
        place = TopicPartition(topic, 0)
        self.produce(topic)
        consumer = self.consumer()
        assert consumer.beginning_offsets([place]) == {place: 0}
        assert consumer.end_offsets([place]) == {place: len(rows.VALUES)}
        consumer.close()

    def commits_and_resumes(self):
        topic, group = self.node.create_stream(), rows.fresh("group")
        self.produce(topic)
        first = self.consumer(group, max_poll_records=20)
        first.subscribe([topic])
        found = []
        rows.until(lambda: found.extend(self.polled(first)) or len(found) >= 20)
        first.commit()
        place = first.position(TopicPartition(topic, 0))
        first.close()
        second = self.consumer(group, max_poll_records=1)
        second.subscribe([topic])
        message = rows.until(lambda: self.polled(second))[0]
        assert message.offset == place, (message.offset, place)
        second.close()

    def join(self, topic: str, group: str, listener=None, **settings) -> "Member":
        consumer = self.consumer(group, **settings)
        consumer.subscribe([topic], listener=listener)
        return Member(consumer)

    def two_members(self, **settings) -> list["Member"]:
        topic, group = self.node.create_stream(shards=4), rows.fresh("group")
        members = [self.join(topic, group, **settings) for _ in range(2)]
        settled(members, [2, 2])
        return members

    def shares_with_a_second_member(self):
        for member in self.two_members():
            member.close()

    def takes_over_from_one_that_leaves(self):
        stays, leaves = self.two_members()
        leaves.close()
        settled([stays], [4])
        stays.close()

    def takes_over_from_one_that_dies(self):
        topic, group = self.node.create_stream(shards=4), rows.fresh("group")
        settings = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 1000}
        stays = self.join(topic, group, **settings)
        # A static member that closes says nothing: its place is free only when it was silent for a session.
        dies = self.join(topic, group, group_instance_id="dies", **settings)
        settled([stays, dies], [2, 2])
        dies.close()
        settled([stays], [4])
        stays.close()

    def keeps_its_place_as_static_member(self):
        topic, group = self.node.create_stream(shards=4), rows.fresh("group")
        stays = self.join(topic, group, group_instance_id="there")
        static = self.join(topic, group, group_instance_id="here")
        settled([stays, static], [2, 2])
        held, generation = static.held, stays.generation()
        static.close()
        static = self.join(topic, group, group_instance_id="here")
        settled([stays, static], [2, 2])
        assert static.held == held and stays.generation() == generation
        for member in (stays, static):
            member.close()

    def rebalances_cooperatively(self):
        topic, group = self.node.create_stream(shards=4), rows.fresh("group")
        settings = {"partition_assignment_strategy": [CooperativeStickyAssignor]}
        lost = []

        class Listener(ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked):
                lost.extend(revoked)

            def on_partitions_assigned(self, assigned):
                pass

        first = self.join(topic, group, Listener(), **settings)
        settled([first], [4])
        second = self.join(topic, group, **settings)
        settled([first, second], [2, 2])
        assert len(lost) == 2, "only what moved was taken away"
        for member in (first, second):
            member.close()

    def reads_and_changes_configs(self):
        admin, topic = KafkaAdminClient(**self.base), rows.fresh("topic")
        admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"cleanup.policy": "compact"})])

        def read(name: str):
            found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
            return found["TOPIC" if "TOPIC" in found else "topic"][topic][name]["value"]

        assert read("cleanup.policy") == "compact"
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "60000"})])
        assert read("retention.ms") == "60000"
        admin.close()

    def deletes_records(self):
        topic = self.node.create_stream()
        place = TopicPartition(topic, 0)
        self.produce(topic)
        admin, consumer = KafkaAdminClient(**self.base), self.consumer()
        admin.delete_records({place: 20})
        assert consumer.beginning_offsets([place]) == {place: 20}
        admin.close()
        consumer.close()

    def describes_groups(self):
        topic, group = self.node.create_stream(), rows.fresh("group")
        admin = KafkaAdminClient(**self.base)
        member = self.join(topic, group)
        settled([member], [1])
        listed = lambda: {one["group_id"] for one in admin.list_groups()}  # noqa: E731
        assert group in listed()
        found = admin.describe_groups([group])[group]
        assert found["group_state"] == "Stable" and len(found["members"]) == 1, found
        member.close()
        admin.delete_groups([group])
        assert group not in listed()
        admin.close()

    def logs_in_with_oauthbearer(self):
        settings = {
            "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Bearer({"secret": self.node.token}),
        }
        consumer = self.consumer(**settings)
        assert "orders" in consumer.topics()
        consumer.close()

    def creates_and_deletes_topics(self):
        admin, topic = KafkaAdminClient(**self.base), rows.fresh("topic")
        admin.create_topics([NewTopic(topic, 3, 1)])
        assert topic in admin.list_topics()
        admin.delete_topics([topic])
        assert topic not in admin.list_topics()
        admin.close()

    @staticmethod
    def settings_as(at: dict):
        settings = {
            "bootstrap_servers": at["bootstrap"], "security_protocol": "SASL_SSL", "ssl_cafile": at["ca"],
            "sasl_mechanism": at["mechanism"],
        }
        if at["mechanism"] == "PLAIN":
            return {**settings, "sasl_plain_username": at["user"], "sasl_plain_password": at["secret"]}
        return {**settings, "sasl_oauth_token_provider": Bearer(at)}

    def topics_as(self, at: dict):
        consumer = KafkaConsumer(**self.settings_as(at))
        topics = consumer.topics()
        consumer.close()
        return topics

    def works_as(self, at: dict, topic: str) -> None:
        producer = KafkaProducer(**self.settings_as(at))
        self.at_work(lambda: producer.send(topic, b"v").get(30))
        producer.close()

    def logs_in_with_plain(self):
        consumer = self.consumer(**self.plain(self.node.token))
        assert "orders" in consumer.topics()
        consumer.close()

    def is_refused_with_a_wrong_token(self):
        try:
            # It tries again until it has tried for long enough.
            self.consumer(bootstrap_timeout_ms=3000, **self.plain("nonsense")).topics()
        except kafka.errors.KafkaError as error:
            assert "uthentication" in f"{error!r} {error.__cause__!r}" or isinstance(error, kafka.errors.KafkaTimeoutError), error
        else:
            raise AssertionError("it was let in")

    def plain(self, token: str):
        return {
            "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN",
            "sasl_plain_username": self.node.tenant, "sasl_plain_password": token,
        }
