"""kafka-python from PyPI: pure Python, sessions of fetches, versions up to the newest."""

from __future__ import annotations

import kafka
from clients import rows
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

TITLE = "kafka-python"


class Client:
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

    def creates_and_deletes_topics(self):
        admin, topic = KafkaAdminClient(**self.base), rows.fresh("topic")
        admin.create_topics([NewTopic(topic, 3, 1)])
        assert topic in admin.list_topics()
        admin.delete_topics([topic])
        assert topic not in admin.list_topics()
        admin.close()

    def logs_in_with_plain(self):
        consumer = self.consumer(**self.plain(self.node.token))
        assert "orders" in consumer.topics()
        consumer.close()

    def is_refused_with_a_wrong_token(self):
        try:
            self.consumer(**self.plain("nonsense")).topics()
        except kafka.errors.KafkaError as error:
            assert "uthentication" in f"{error!r} {error.__cause__!r}" or isinstance(error, kafka.errors.KafkaTimeoutError), error
        else:
            raise AssertionError("it was let in")

    def plain(self, token: str):
        return {
            "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN",
            "sasl_plain_username": self.node.tenant, "sasl_plain_password": token,
        }
