"""confluent-kafka from PyPI, on the newest librdkafka."""

from __future__ import annotations

import time

import confluent_kafka
from clients import rows
from clients.logins import Logins
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, OffsetSpec

TITLE = "confluent-kafka"


class Client(Logins):
    def __init__(self, node):
        self.node = node
        self.base = {"bootstrap.servers": node.kafka_bootstrap}

    @staticmethod
    def version() -> str:
        return f"{confluent_kafka.__version__}, librdkafka {confluent_kafka.libversion()[0]}"

    def produce(self, topic: str, values=rows.VALUES, **settings) -> None:
        settings = {key.replace("_", "."): value for key, value in settings.items()}
        producer = Producer({**self.base, "linger.ms": 20, **settings})
        wrong = []
        for value in values:
            producer.produce(topic, value, on_delivery=lambda error, _: error and wrong.append(error))
        assert producer.flush(60) == 0 and not wrong, wrong

    def consumer(self, group: str | None = None, **settings) -> Consumer:
        settings = {key.replace("_", "."): value for key, value in settings.items()}
        return Consumer({
            **self.base, "group.id": group or rows.fresh("group"), "auto.offset.reset": "earliest",
            "enable.auto.commit": False, **settings,
        })

    def read(self, topic: str, count: int, *, partition: int = 0, offset: int = 0):
        consumer = self.consumer()
        consumer.assign([TopicPartition(topic, partition, offset)])
        found = []
        rows.until(lambda: found.extend(self.good(consumer.consume(count, 0.5))) or len(found) >= count)
        consumer.close()
        return found

    @staticmethod
    def good(messages):
        for message in messages:
            assert message.error() is None, message.error()
        return messages

    def produces(self, codec: str) -> None:
        topic = self.node.create_stream()
        self.produce(topic, compression_type=codec)
        assert rows.stored_codec(self.node, topic) == codec
        assert [one.value() for one in self.read(topic, len(rows.VALUES))] == rows.VALUES

    def lists_topics(self):
        topic = self.node.create_stream(shards=3)
        listed = AdminClient(self.base).list_topics(timeout=30)
        assert len(listed.topics[topic].partitions) == 3

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
        self.produce(topic, enable_idempotence=True)
        assert [one.value() for one in self.read(topic, len(rows.VALUES))] == rows.VALUES

    def produces_with_every_acks(self):
        for acks in (0, 1, -1):
            topic = self.node.create_stream()
            self.produce(topic, acks=acks)
            rows.until(lambda: rows.count(self.node, topic) == len(rows.VALUES))

    def keeps_keys_headers_and_nulls(self):
        topic = self.node.create_stream()
        producer = Producer(self.base)
        producer.produce(topic, b"value", b"key", headers=[("h", b"a"), ("h", b"b"), ("n", None)], timestamp=1234567890123)
        producer.produce(topic, None, b"gone")
        producer.produce(topic, b"", None)
        assert producer.flush(30) == 0
        first, second, third = self.read(topic, 3)
        assert first.headers() == [("h", b"a"), ("h", b"b"), ("n", None)]
        assert first.timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, 1234567890123)
        assert (second.key(), second.value()) == (b"gone", None)
        assert (third.key(), third.value() or b"") == (None, b"")

    def sees_the_times_of_the_broker(self):
        topic, before = self.node.create_stream(timestamps="append"), int(time.time() * 1000)
        producer, acked = Producer(self.base), []
        producer.produce(topic, b"value", timestamp=1, on_delivery=lambda error, message: acked.append(message))
        assert producer.flush(30) == 0
        kind, at = self.read(topic, 1)[0].timestamp()
        assert kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME and at >= before - 1000, (kind, at)
        assert acked[0].timestamp() == (kind, at), acked[0].timestamp()

    def is_slowed_by_a_quota(self):
        slowed, wrong = [], []

        def delivered(error, _):
            if error:
                wrong.append(error)

        with rows.slow_topic(self.node) as topic:
            producer = Producer({**self.base, "throttle_cb": lambda event: slowed.append(event.throttle_time)})

            def sent():
                producer.produce(topic, b"x" * 10_000, on_delivery=delivered)
                producer.flush(30)
                return any(slowed)

            rows.until(sent)
            assert producer.flush(60) == 0 and not wrong, wrong

    def sends_large_messages(self):
        topic = self.node.create_stream()
        self.produce(topic, [b"x" * 900_000])
        assert len(self.read(topic, 1)[0].value()) == 900_000

    def consumes_assigned(self):
        topic = self.node.create_stream(shards=2)
        producer = Producer(self.base)
        for number in range(10):
            producer.produce(topic, str(number).encode(), partition=1)
        assert producer.flush(30) == 0
        assert [one.offset() for one in self.read(topic, 7, partition=1, offset=3)] == list(range(3, 10))

    def seeks_by_time(self):
        topic = self.node.create_stream()
        producer = Producer(self.base)
        for at in (1000, 3000, 2000, 4000):
            producer.produce(topic, str(at).encode(), timestamp=at)
            assert producer.flush(30) == 0
        consumer = self.consumer()
        found = consumer.offsets_for_times([TopicPartition(topic, 0, 2500)], timeout=30)
        assert found[0].offset == 1, found
        consumer.close()

    def sees_the_ends(self):
        topic, group = self.node.create_stream(), rows.fresh("group")
        self.produce(topic)
        consumer = self.consumer(group)
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30) == (0, len(rows.VALUES))
        consumer.close()
        # The client must outlive what it was asked.
        admin = AdminClient(self.base)
        latest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})
        assert [one.result(30).offset for one in latest.values()] == [len(rows.VALUES)]

    def commits_and_resumes(self):
        self.resumes({})
        self.keeps_streams_apart()

    def resumes(self, settings):
        topic, group = self.node.create_stream(), rows.fresh("group")
        self.produce(topic)
        first = self.consumer(group, **settings)
        first.subscribe([topic])
        found = []
        rows.until(lambda: found.extend(self.good(first.consume(20, 0.5))) or len(found) >= 20)
        first.commit(offsets=[TopicPartition(topic, 0, 20)], asynchronous=False)
        first.close()
        second = self.consumer(group, **settings)
        second.subscribe([topic])
        message = rows.until(lambda: self.good(second.consume(1, 0.5)))[0]
        assert message.offset() == 20, message.offset()
        assert second.committed([TopicPartition(topic, 0)], timeout=30)[0].offset == 20
        second.close()

    def members(self, topic: str, group: str, count: int, **settings) -> list[Consumer]:
        members = [self.consumer(group, **settings) for _ in range(count)]
        for member in members:
            member.subscribe([topic])
        return members

    def settled(self, members, wanted: list[int]):
        """Polls all of them until each has as many partitions as wanted."""

        def attempt():
            for member in members:
                self.good(member.consume(100, 0.1))
            return sorted(len(member.assignment()) for member in members) == sorted(wanted)

        rows.until(attempt)

    def shares_with_a_second_member(self):
        topic, group = self.node.create_stream(shards=4), rows.fresh("group")
        members = self.members(topic, group, 2)
        self.settled(members, [2, 2])
        for member in members:
            member.close()

    def takes_over_from_one_that_leaves(self):
        topic, group = self.node.create_stream(shards=4), rows.fresh("group")
        stays, leaves = self.members(topic, group, 2)
        self.settled([stays, leaves], [2, 2])
        leaves.close()
        self.settled([stays], [4])
        stays.close()

    def takes_over_from_one_that_dies(self):
        topic, group = self.node.create_stream(shards=4), rows.fresh("group")
        # A static member that closes says nothing: its place is free only when it was silent for a session.
        stays = self.consumer(group, session_timeout_ms=6000, heartbeat_interval_ms=1000)
        dies = self.consumer(group, session_timeout_ms=6000, heartbeat_interval_ms=1000, group_instance_id="dies")
        for member in (stays, dies):
            member.subscribe([topic])
        self.settled([stays, dies], [2, 2])
        dies.close()
        self.settled([stays], [4])
        stays.close()

    def keeps_its_place_as_static_member(self):
        topic, group = self.node.create_stream(shards=4), rows.fresh("group")
        rebalances = []
        stays = self.consumer(group)
        stays.subscribe([topic], on_assign=lambda *_: rebalances.append("assign"))
        static = self.members(topic, group, 1, group_instance_id="here")[0]
        self.settled([stays, static], [2, 2])
        before, held = len(rebalances), sorted(one.partition for one in static.assignment())
        static.close()
        static = self.members(topic, group, 1, group_instance_id="here")[0]
        self.settled([stays, static], [2, 2])
        assert sorted(one.partition for one in static.assignment()) == held
        assert len(rebalances) == before
        for member in (stays, static):
            member.close()

    def rebalances_cooperatively(self):
        topic, group = self.node.create_stream(shards=4), rows.fresh("group")
        lost = []
        settings = {"partition_assignment_strategy": "cooperative-sticky"}
        first = self.consumer(group, **settings)
        first.subscribe([topic], on_revoke=lambda _, gone: lost.extend(gone))
        self.settled([first], [4])
        second = self.members(topic, group, 1, **settings)[0]
        self.settled([first, second], [2, 2])
        assert len(lost) == 2, "only what moved was taken away"
        for member in (first, second):
            member.close()

    def consumes_with_the_consumer_protocol(self):
        settings = {"group_protocol": "consumer"}
        self.resumes(settings)
        topic, group = self.node.create_stream(shards=4), rows.fresh("group")
        stays, leaves = self.members(topic, group, 2, **settings)
        self.settled([stays, leaves], [2, 2])
        leaves.close()
        self.settled([stays], [4])
        stays.close()
        self.keeps_streams_apart(**settings)

    def keeps_streams_apart(self, **settings):
        """Streams that were created together share an incarnation, and nothing else."""
        topics, group = self.node.create_streams_together(3), rows.fresh("group")
        for topic in topics:
            self.produce(topic, [topic.encode()] * 5)
        member, found = self.consumer(group, **settings), []
        member.subscribe(topics)
        rows.until(lambda: found.extend(self.good(member.consume(20, 0.5))) or len(found) >= 15)
        assert sorted(one.value().decode() for one in found) == sorted(one.topic() for one in found)
        offsets = [TopicPartition(topic, 0, offset + 1) for offset, topic in enumerate(topics)]
        member.commit(offsets=offsets, asynchronous=False)
        committed = member.committed([TopicPartition(topic, 0) for topic in topics], timeout=30)
        assert [one.offset for one in committed] == [1, 2, 3], committed
        member.close()

    def creates_and_deletes_topics(self):
        admin, topic = AdminClient(self.base), rows.fresh("topic")
        admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(30)
        assert len(admin.list_topics(timeout=30).topics[topic].partitions) == 3
        try:
            admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(30)
            raise AssertionError("it was made twice")
        except KafkaException as error:
            assert error.args[0].code() == 36, error
        self.produce(topic)
        admin.delete_topics([topic])[topic].result(30)
        assert topic not in admin.list_topics(timeout=30).topics

    def reads_and_changes_configs(self):
        admin, topic = AdminClient(self.base), rows.fresh("topic")
        admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})])[topic].result(30)

        def read():
            resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
            return admin.describe_configs([resource])[resource].result(30)

        assert read()["cleanup.policy"].value == "compact"
        entry = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
        change = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([change])[change].result(30)
        assert read()["retention.ms"].value == "60000"

    def deletes_records(self):
        topic = self.node.create_stream()
        self.produce(topic)
        admin = AdminClient(self.base)
        deleted = admin.delete_records([TopicPartition(topic, 0, 20)])
        assert [one.result(30).low_watermark for one in deleted.values()] == [20]
        assert self.read(topic, 1, offset=20)[0].offset() == 20

    def describes_groups(self):
        topic, group = self.node.create_stream(), rows.fresh("group")
        admin = AdminClient(self.base)
        member = self.members(topic, group, 1)[0]
        self.settled([member], [1])
        listed = admin.list_consumer_groups().result(30)
        assert group in [one.group_id for one in listed.valid]
        described = admin.describe_consumer_groups([group])[group].result(30)
        assert described.state.name == "STABLE" and len(described.members) == 1
        member.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        member.close()
        admin.delete_consumer_groups([group])[group].result(30)
        assert group not in [one.group_id for one in admin.list_consumer_groups().result(30).valid]

    def sasl(self, mechanism: str, **settings):
        settings = {key.replace("_", "."): value for key, value in settings.items()}
        return {**self.base, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, **settings}

    def settings_as(self, at: dict):
        settings = {
            "bootstrap.servers": at["bootstrap"], "security.protocol": "SASL_SSL", "ssl.ca.location": at["ca"],
            "sasl.mechanism": at["mechanism"],
        }
        if at["mechanism"] == "PLAIN":
            return {**settings, "sasl.username": at["user"], "sasl.password": at["secret"]}
        extensions = ",".join(f"{name}={value}" for name, value in at["extensions"].items())
        return {
            **settings, "sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "worker",
            "sasl.oauthbearer.client.secret": "hidden", "sasl.oauthbearer.extensions": extensions,
            "sasl.oauthbearer.token.endpoint.url": at["token_url"],
        }

    def topics_as(self, at: dict):
        return AdminClient(self.settings_as(at)).list_topics(timeout=30).topics

    def works_as(self, at: dict, topic: str) -> None:
        producer = Producer(self.settings_as(at))

        def send():
            producer.produce(topic, b"v")
            assert producer.flush(30) == 0

        self.at_work(send)

    def logs_in_with_plain(self):
        settings = self.sasl("PLAIN", sasl_username=self.node.tenant, sasl_password=self.node.token)
        assert AdminClient(settings).list_topics(timeout=30).topics

    def logs_in_with_oauthbearer(self):
        settings = self.sasl("OAUTHBEARER")
        settings["oauth_cb"] = lambda _: (self.node.token, time.time() + 600)
        producer = Producer(settings)
        producer.poll(0)
        assert producer.list_topics(timeout=30).topics

    def is_refused_with_a_wrong_token(self):
        settings = self.sasl("PLAIN", sasl_username=self.node.tenant, sasl_password="nonsense")
        wrong = []
        admin = AdminClient({**settings, "error_cb": wrong.append})
        rows.until(lambda: admin.poll(0.2) or [one for one in wrong if "uthentication" in one.str()])
