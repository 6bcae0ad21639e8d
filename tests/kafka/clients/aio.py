"""aiokafka from PyPI: old versions of every request."""

from __future__ import annotations

import asyncio
import time

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.helpers import create_ssl_context
from aiokafka.errors import KafkaError
from clients import rows
from clients.logins import Logins

TITLE = "aiokafka"


async def settled(members, wanted: list[int]) -> None:
    """Waits until each has as many partitions as wanted."""
    async with asyncio.timeout(rows.PATIENCE):
        while sorted(len(one.assignment()) for one in members) != sorted(wanted):
            await asyncio.sleep(0.05)


class Bearer(AbstractTokenProvider):
    """Gives a token as it was given."""

    def __init__(self, at: dict):
        self.at = at

    async def token(self) -> str:
        return self.at["secret"]

    def extensions(self) -> dict[str, str]:
        return self.at.get("extensions", {})


class Client(Logins):
    def __init__(self, node):
        self.node = node
        self.base = {"bootstrap_servers": node.kafka_bootstrap}

    @staticmethod
    def version() -> str:
        return aiokafka.__version__

    async def produce(self, topic: str, values=rows.VALUES, **settings) -> None:
        async with AIOKafkaProducer(**self.base, linger_ms=20, **settings) as producer:
            sent = [await producer.send(topic, value) for value in values]
            await asyncio.wait_for(asyncio.gather(*sent), rows.PATIENCE)

    def consumer(self, *topics: str, group: str | None = None, **settings) -> AIOKafkaConsumer:
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings}
        return AIOKafkaConsumer(*topics, **self.base, group_id=group, **settings)

    async def read(self, topic: str, count: int, *, partition: int = 0, offset: int = 0):
        async with self.consumer() as consumer:
            place = TopicPartition(topic, partition)
            consumer.assign([place])
            consumer.seek(place, offset)
            return [await asyncio.wait_for(consumer.getone(), rows.PATIENCE) for _ in range(count)]

    def produces(self, codec: str | None) -> None:
        async def run():
            topic = self.node.create_stream()
            await self.produce(topic, compression_type=codec)
            assert rows.stored_codec(self.node, topic) == (codec or "none")
            assert [one.value for one in await self.read(topic, len(rows.VALUES))] == rows.VALUES

        asyncio.run(run())

    def lists_topics(self):
        async def run():
            topic = self.node.create_stream(shards=3)
            async with self.consumer() as consumer:
                assert topic in await consumer.topics()

        asyncio.run(run())

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
        async def run():
            topic = self.node.create_stream()
            await self.produce(topic, enable_idempotence=True)
            assert [one.value for one in await self.read(topic, len(rows.VALUES))] == rows.VALUES

        asyncio.run(run())

    def produces_with_every_acks(self):
        for acks in (0, 1, "all"):
            topic = self.node.create_stream()
            asyncio.run(self.produce(topic, acks=acks))
            rows.until(lambda: rows.count(self.node, topic) == len(rows.VALUES))

    def keeps_keys_headers_and_nulls(self):
        async def run():
            topic = self.node.create_stream()
            async with AIOKafkaProducer(**self.base) as producer:
                headers = [("h", b"a"), ("h", b"b")]
                await producer.send_and_wait(topic, b"value", b"key", headers=headers, timestamp_ms=1234567890123)
                await producer.send_and_wait(topic, None, b"gone")
            first, second = await self.read(topic, 2)
            assert list(first.headers) == headers and first.timestamp == 1234567890123
            assert (second.key, second.value) == (b"gone", None)

        asyncio.run(run())

    def sees_the_times_of_the_broker(self):
        async def run():
            topic, before = self.node.create_stream(timestamps="append"), int(time.time() * 1000)
            async with AIOKafkaProducer(**self.base) as producer:
                acked = await producer.send_and_wait(topic, b"value", timestamp_ms=1)
            found = (await self.read(topic, 1))[0]
            assert found.timestamp_type == 1 and found.timestamp >= before - 1000, found
            assert acked.timestamp == found.timestamp, acked

        asyncio.run(run())

    def sends_large_messages(self):
        async def run():
            topic = self.node.create_stream()
            await self.produce(topic, [b"x" * 900_000])
            assert len((await self.read(topic, 1))[0].value) == 900_000

        asyncio.run(run())

    def consumes_assigned(self):
        async def run():
            topic = self.node.create_stream(shards=2)
            async with AIOKafkaProducer(**self.base) as producer:
                for number in range(10):
                    await producer.send_and_wait(topic, str(number).encode(), partition=1)
            assert [one.offset for one in await self.read(topic, 7, partition=1, offset=3)] == list(range(3, 10))

        asyncio.run(run())

    def seeks_by_time(self):
        async def run():
            topic = self.node.create_stream()
            place = TopicPartition(topic, 0)
            async with AIOKafkaProducer(**self.base) as producer:
                for at in (1000, 3000, 2000, 4000):
                    await producer.send_and_wait(topic, b"v", timestamp_ms=at)
            async with self.consumer() as consumer:
                found = (await consumer.offsets_for_times({place: 2500}))[place]
                assert (found.offset, found.timestamp) == (1, 3000), found

        asyncio.run(run())

    def sees_the_ends(self):
        async def run():
            topic = self.node.create_stream()
            place = TopicPartition(topic, 0)
            await self.produce(topic)
            async with self.consumer() as consumer:
                assert await consumer.end_offsets([place]) == {place: len(rows.VALUES)}

        asyncio.run(run())

    def commits_and_resumes(self):
        async def run():
            topic, group = self.node.create_stream(), rows.fresh("group")
            place = TopicPartition(topic, 0)
            await self.produce(topic)
            async with self.consumer(topic, group=group) as first:
                for _ in range(20):
                    await asyncio.wait_for(first.getone(), rows.PATIENCE)
                await first.commit({place: 20})
            async with self.consumer(topic, group=group) as second:
                message = await asyncio.wait_for(second.getone(), rows.PATIENCE)
                assert message.offset == 20, message.offset

        asyncio.run(run())

    def shares_with_a_second_member(self):
        async def run():
            topic, group = self.node.create_stream(shards=4), rows.fresh("group")
            async with self.consumer(topic, group=group) as one, self.consumer(topic, group=group) as two:
                await settled([one, two], [2, 2])

        asyncio.run(run())

    def takes_over_from_one_that_leaves(self):
        async def run():
            topic, group = self.node.create_stream(shards=4), rows.fresh("group")
            async with self.consumer(topic, group=group) as stays:
                async with self.consumer(topic, group=group) as leaves:
                    await settled([stays, leaves], [2, 2])
                await settled([stays], [4])

        asyncio.run(run())

    def takes_over_from_one_that_dies(self):
        async def run():
            topic, group = self.node.create_stream(shards=4), rows.fresh("group")
            settings = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 1000}
            async with self.consumer(topic, group=group, **settings) as stays:
                # A static member that stops says nothing: its place is free only when it was silent for a session.
                async with self.consumer(topic, group=group, group_instance_id="dies", **settings) as dies:
                    await settled([stays, dies], [2, 2])
                await settled([stays], [4])

        asyncio.run(run())

    def keeps_its_place_as_static_member(self):
        async def run():
            topic, group = self.node.create_stream(shards=4), rows.fresh("group")
            async with self.consumer(topic, group=group, group_instance_id="there") as stays:
                async with self.consumer(topic, group=group, group_instance_id="here") as static:
                    await settled([stays, static], [2, 2])
                    held = static.assignment()
                async with self.consumer(topic, group=group, group_instance_id="here") as static:
                    await settled([stays, static], [2, 2])
                    assert static.assignment() == held

        asyncio.run(run())

    def reads_and_changes_configs(self):
        async def run():
            topic, admin = rows.fresh("topic"), AIOKafkaAdminClient(**self.base)
            await admin.start()
            await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"cleanup.policy": "compact"})])

            async def read():
                (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
                return {entry[0]: entry[1] for entry in answer.resources[0][4]}

            assert (await read())["cleanup.policy"] == "compact"
            change = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "60000"})
            await admin.alter_configs([change])
            # It sets everything: what is not named has its default again.
            found = await read()
            assert (found["retention.ms"], found["cleanup.policy"]) == ("60000", "delete"), found
            await admin.close()

        asyncio.run(run())

    def deletes_records(self):
        async def run():
            topic = self.node.create_stream()
            place, admin = TopicPartition(topic, 0), AIOKafkaAdminClient(**self.base)
            await self.produce(topic)
            await admin.start()
            assert await admin.delete_records({place: RecordsToDelete(before_offset=20)}) == {place: 20}
            await admin.close()
            async with self.consumer() as consumer:
                assert await consumer.beginning_offsets([place]) == {place: 20}

        asyncio.run(run())

    def logs_in_with_oauthbearer(self):
        async def run():
            settings = {
                "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauth_token_provider": Bearer({"secret": self.node.token}),
            }
            async with self.consumer(**settings) as consumer:
                assert "orders" in await consumer.topics()

        asyncio.run(run())

    def is_refused_with_a_wrong_token(self):
        async def run():
            settings = {
                "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN",
                "sasl_plain_username": self.node.tenant, "sasl_plain_password": "nonsense",
            }
            consumer = self.consumer(**settings)
            try:
                await consumer.start()
            except KafkaError as error:
                assert "connect" in str(error).lower() or "auth" in str(error).lower(), error
            else:
                raise AssertionError("it was let in")
            finally:
                await consumer.stop()

        asyncio.run(run())

    def creates_and_deletes_topics(self):
        async def run():
            topic = rows.fresh("topic")
            admin = AIOKafkaAdminClient(**self.base)
            await admin.start()
            await admin.create_topics([NewTopic(topic, 3, 1)])
            assert topic in await admin.list_topics()
            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()
            await admin.close()

        asyncio.run(run())

    # It renews no login: the connection ends with it, and another one is made.
    renews_its_login = None

    @staticmethod
    def settings_as(at: dict):
        settings = {
            "bootstrap_servers": at["bootstrap"], "security_protocol": "SASL_SSL", "sasl_mechanism": at["mechanism"],
            "ssl_context": create_ssl_context(cafile=at["ca"]),
        }
        if at["mechanism"] == "PLAIN":
            return {**settings, "sasl_plain_username": at["user"], "sasl_plain_password": at["secret"]}
        return {**settings, "sasl_oauth_token_provider": Bearer(at)}

    def topics_as(self, at: dict):
        async def run():
            async with AIOKafkaConsumer(**self.settings_as(at)) as consumer:
                return await consumer.topics()

        return asyncio.run(run())

    def logs_in_with_plain(self):
        async def run():
            settings = {
                "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN",
                "sasl_plain_username": self.node.tenant, "sasl_plain_password": self.node.token,
            }
            async with self.consumer(**settings) as consumer:
                assert "orders" in await consumer.topics()

        asyncio.run(run())
