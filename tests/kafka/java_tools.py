"""Kafka's own command line tools, run against the listener one after the other.

    python tests/kafka/java_tools.py DIRECTORY_OF_OUR_PROGRAMS [PART_OF_A_NAME]

Needs what tests/kafka/install puts into the directory that $FELIX_KAFKA_CLIENTS names. Prints `N passed, N failed`.
"""

from __future__ import annotations

import json
import pathlib
import re
import tempfile
import uuid

import clients.java
import harness
import jvm
from harness import check
from jvm import TOOLS, tool

from clients.rows import until

GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
CONSOLE_CONSUMER = f"{TOOLS}.consumer.ConsoleConsumer"


def fresh(what: str) -> str:
    return f"{what}-{uuid.uuid4().hex[:8]}"


def at(node) -> tuple[str, str]:
    return ("--bootstrap-server", node.kafka_bootstrap)


def topic(node, *arguments: str, **how) -> str:
    return tool(f"{TOOLS}.TopicCommand", *at(node), *arguments, **how)


def console_produce(node, name: str, data: bytes, *arguments: str) -> None:
    tool(f"{TOOLS}.ConsoleProducer", *at(node), "--topic", name, *arguments, data=data)


def console_consume(node, name: str, count: int, *arguments: str) -> list[str]:
    said = tool(
        CONSOLE_CONSUMER, *at(node), "--topic", name, "--max-messages", count, "--timeout-ms", "60000", *arguments
    )
    return said.splitlines()


def offsets(node, *arguments: str) -> list[str]:
    return tool(f"{TOOLS}.GetOffsetShell", *at(node), *arguments).split()


def table(text: str) -> list[dict[str, str]]:
    """The rows of a table that a tool prints, by the names in its head."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    heads = [number for number, line in enumerate(lines) if line[0] == "GROUP"]
    assert heads, text
    return [dict(zip(lines[heads[0]], line)) for line in lines[heads[0] + 1 :] if len(line) >= 3]


def leader(described):
    """The number of the broker that leads the first partition of a described topic."""
    return re.search(r"Leader: (\d+)", described)[1]


@check
def kafka_topics_creates_lists_describes_and_deletes(node):
    name = fresh("topic")
    topic(node, "--create", "--topic", name, "--partitions", "3", "--config", "retention.ms=86400000")
    assert name in topic(node, "--list").split()
    described = topic(node, "--describe", "--topic", name)
    assert "PartitionCount: 3" in described and "retention.ms=86400000" in described, described
    assert re.search(r"TopicId: [\w-]{20,}", described) and described.count(f"Leader: {leader(described)}\t") == 3, described
    said = topic(node, "--create", "--topic", name, ok=False)
    assert "already exists" in said or "exists" in said, said
    topic(node, "--create", "--topic", name, "--if-not-exists")
    topic(node, "--delete", "--topic", name)
    assert name not in topic(node, "--list").split()


@check
def kafka_topics_is_told_why_partitions_are_not_added(node):
    name = node.create_stream()
    said = topic(node, "--alter", "--topic", name, "--partitions", "4", ok=False)
    assert "fixed" in said, said


@check
def the_console_tools_carry_keys_headers_and_times(node):
    name = node.create_stream()
    parsed = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    console_produce(node, name, b"h:a,h:b\tkey\tvalue\n", *parsed)
    shown = [f"print.{one}=true" for one in ("key", "headers", "timestamp", "offset", "partition")]
    options = [part for one in shown for part in ("--formatter-property", one)]
    (line,) = console_consume(node, name, 1, "--from-beginning", *options)
    assert re.fullmatch(r"CreateTime:\d{13}\tPartition:0\tOffset:0\th:a,h:b\tkey\tvalue", line), line


@check
def the_console_tools_use_every_codec_and_groups(node):
    name, group = node.create_stream(), fresh("group")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        console_produce(node, name, f"{codec}\n".encode(), "--compression-codec", codec)
    found = console_consume(node, name, 5, "--from-beginning", "--group", group)
    assert found == ["none", "gzip", "snappy", "lz4", "zstd"], found
    console_produce(node, name, b"more\n")
    found = console_consume(node, name, 1, "--group", group)
    assert found == ["more"], found


@check
def verifiable_producer_and_consumer_agree(node):
    name, group, count = node.create_stream(shards=2), fresh("group"), 500
    said = tool(f"{TOOLS}.VerifiableProducer", *at(node), "--topic", name, "--max-messages", count, "--acks", "-1")
    events = [json.loads(line) for line in said.splitlines()]
    sent = [one["value"] for one in events if one["name"] == "producer_send_success"]
    assert len(sent) == count and not [one for one in events if one["name"] == "producer_send_error"]
    for protocol in ("classic", "consumer"):
        said = tool(
            f"{TOOLS}.VerifiableConsumer", *at(node), "--topic", name, "--group-id", f"{group}-{protocol}",
            "--max-messages", count, "--reset-policy", "earliest", "--verbose", "--group-protocol", protocol,
        )
        events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        read = [one["value"] for one in events if one["name"] == "record_data"]
        assert sorted(read) == sorted(sent), (len(read), len(sent))
        committed = [one for one in events if one["name"] == "offsets_committed"]
        assert committed and all(one["success"] for one in committed), committed


@check
def the_performance_tools_run(node):
    name, count = node.create_stream(), 20_000
    said = tool(
        f"{TOOLS}.ProducerPerformance", "--topic", name, "--num-records", count, "--record-size", "100",
        "--throughput", "-1", "--bootstrap-server", node.kafka_bootstrap,
        "--command-property", "compression.type=lz4",
    )
    assert f"{count} records sent" in said, said
    said = tool(f"{TOOLS}.ConsumerPerformance", *at(node), "--topic", name, "--num-records", count)
    head, *rows = [line.split(", ") for line in said.splitlines() if ", " in line]
    found = dict(zip(head, rows[0]))
    assert int(found["data.consumed.in.nMsg"]) >= count, said


@check
def kafka_get_offsets_gives_ends_and_times(node):
    name = node.create_stream(shards=2)
    console_produce(node, name, b"k\t1\nk\t2\nk\t3\n", "--reader-property", "parse.key=true")
    assert offsets(node, "--topic", name, "--time", "earliest") == [f"{name}:0:0", f"{name}:1:0"]
    ends = offsets(node, "--topic", name, "--time", "latest")
    assert sorted(int(one.rsplit(":", 1)[1]) for one in ends) == [0, 3], ends
    greatest = offsets(node, "--topic", name, "--time", "max-timestamp")
    assert [one for one in greatest if re.search(r":[012]$", one)], greatest
    assert offsets(node, "--topic", name, "--time", "1")[0].rsplit(":", 1)[1] in ("0", "")


@check
def kafka_delete_records_moves_the_beginning(node):
    name = node.create_stream()
    console_produce(node, name, b"1\n2\n3\n")
    wanted = {"version": 1, "partitions": [{"topic": name, "partition": 0, "offset": 2}]}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(wanted, file)
        file.flush()
        said = tool(f"{TOOLS}.DeleteRecordsCommand", *at(node), "--offset-json-file", file.name)
    assert "low_watermark: 2" in said, said
    assert offsets(node, "--topic", name, "--time", "earliest") == [f"{name}:0:2"]


@check
def kafka_consumer_groups_shows_a_live_group_and_its_lag(node):
    name, group = node.create_stream(), fresh("group")
    console_produce(node, name, b"1\n2\n3\n")
    with tempfile.TemporaryDirectory() as scratch:
        arguments = (*at(node), "--topic", name, "--group-id", group, "--reset-policy", "earliest")
        with jvm.running(pathlib.Path(scratch), f"{TOOLS}.VerifiableConsumer", *arguments) as output:
            until(lambda: "offsets_committed" in output.read_text(), 100)
            console_produce(node, name, b"4\n")
            assert group in tool(GROUPS, *at(node), "--list").split()
            states = tool(GROUPS, *at(node), "--list", "--state", "Stable")
            assert re.search(rf"^{group}\s+Stable", states, re.M), states
            (row,) = table(tool(GROUPS, *at(node), "--describe", "--group", group))
            assert row["TOPIC"] == name and row["CONSUMER-ID"] != "-" and int(row["LOG-END-OFFSET"]) == 4, row
            (row,) = table(tool(GROUPS, *at(node), "--describe", "--members", "--group", group))
            assert row["#PARTITIONS"] == "1", row
            (row,) = table(tool(GROUPS, *at(node), "--describe", "--state", "--group", group))
            assert "Stable" in row.values(), row
            said = tool(GROUPS, *at(node), "--delete", "--group", group)
            assert "GroupNotEmptyException" in said, said


@check
def kafka_consumer_groups_resets_and_deletes_offsets(node):
    name, group = node.create_stream(), fresh("group")
    console_produce(node, name, b"1\n2\n3\n4\n5\n")
    console_consume(node, name, 5, "--from-beginning", "--group", group)
    lag = lambda: table(tool(GROUPS, *at(node), "--describe", "--group", group))  # noqa: E731
    until(lambda: lag()[0]["CURRENT-OFFSET"] == "5", 100)
    reset = (GROUPS, *at(node), "--group", group, "--reset-offsets", "--topic", name)
    said = tool(*reset, "--to-offset", "2", "--dry-run")
    assert re.search(rf"{name}\s+0\s+2", said), said
    assert lag()[0]["CURRENT-OFFSET"] == "5"
    tool(*reset, "--to-offset", "2", "--execute")
    (row,) = lag()
    assert (row["CURRENT-OFFSET"], row["LAG"]) == ("2", "3"), row
    assert console_consume(node, name, 3, "--group", group) == ["3", "4", "5"]
    tool(*reset, "--to-datetime", "2001-01-01T00:00:00.000", "--execute")
    tool(*reset, "--shift-by", "1", "--execute")
    assert lag()[0]["CURRENT-OFFSET"] == "1"
    tool(GROUPS, *at(node), "--group", group, "--delete-offsets", "--topic", name)
    tool(GROUPS, *at(node), "--delete", "--group", group)
    assert group not in tool(GROUPS, *at(node), "--list").split()


@check
def kafka_configs_describes_and_alters(node):
    name = node.create_stream()
    configs = ("kafka.admin.ConfigCommand", *at(node), "--entity-type", "topics", "--entity-name", name)
    tool(*configs, "--alter", "--add-config", "retention.ms=3600000,cleanup.policy=delete")
    said = tool(*configs, "--describe")
    assert "retention.ms=3600000" in said, said
    assert "max.message.bytes" in tool(*configs, "--describe", "--all")
    tool(*configs, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms=3600000" not in tool(*configs, "--describe")
    said = tool(*configs, "--alter", "--add-config", "compression.type=zstd", ok=False)
    assert "compression.type" in said, said
    number = leader(topic(node, "--describe", "--topic", name))
    broker = ("kafka.admin.ConfigCommand", *at(node), "--entity-type", "brokers", "--entity-name", number)
    tool(*broker, "--describe", "--all")


@check
def the_tools_about_the_cluster_run(node):
    said = tool(f"{TOOLS}.ClusterTool", "cluster-id", *at(node))
    assert "Cluster ID: " in said, said
    said = tool(f"{TOOLS}.BrokerApiVersionsCommand", *at(node))
    assert "Produce(0)" in said and "ApiVersions(18)" in said, said
    name = node.create_stream()
    console_produce(node, name, b"1\n")
    said = tool(f"{TOOLS}.LogDirsCommand", *at(node), "--describe", "--topic-list", name)
    dirs = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    (found,) = [one for one in dirs["brokers"][0]["logDirs"][0]["partitions"] if one["partition"] == f"{name}-0"]
    assert found["size"] > 0, said
    group = fresh("group")
    console_consume(node, name, 1, "--from-beginning", "--group", group)
    assert group in tool(f"{TOOLS}.GroupsCommand", *at(node), "--list")


@check
def kafka_acls_lists_the_rules_of_the_tenant(node):
    said = tool(f"{TOOLS}.AclCommand", *at(node), "--list")
    assert "principal" in said.lower(), said


@check
def transactions_are_refused_at_once(node):
    name = node.create_stream()
    said = tool(
        f"{TOOLS}.ProducerPerformance", "--topic", name, "--num-records", "10", "--record-size", "10",
        "--throughput", "-1", "--bootstrap-server", node.kafka_bootstrap, "--transactional-id", "mine",
        "--transaction-duration-ms", "100", ok=False,
    )
    assert "ransaction" in said, said


@check
def consoles_for_kafka_are_answered_or_told_that_something_is_not_served(node):
    name, group, client = node.create_stream(), fresh("group"), clients.java.Client(node)
    client.produce(name)
    with client.a_member_that_committed(name, group):
        found = client.ask("survey", topic=name, group=group)
    refused = {question: error for question, error in found.items() if error != "ok"}
    # The page of docs/kafka.md says so.
    not_served = (
        "describeClientQuotas", "describeMetadataQuorum", "describeProducers", "describeUserScramCredentials",
        "listConfigResources", "listTransactions",
    )
    assert refused == dict.fromkeys(not_served, "UnsupportedVersionException"), refused
    client.close()


@check
def the_compatibility_test_of_kafka_passes(node):
    name = node.create_stream()
    flags = {
        "offsets-for-times": True, "cluster-id": True, "create-topics": True, "describe-acls": True,
        "describe-configs": True, "idempotent-producer": True,
    }
    options = [part for name, on in flags.items() for part in (f"--{name}-supported", str(on))]
    tool(
        f"{TOOLS}.ClientCompatibilityTest", *at(node), "--topic", name, "--num-cluster-nodes", "1",
        "--expect-record-too-large-exception", "False", *options,
    )


if __name__ == "__main__":
    if not jvm.is_there():
        print("SKIPPED: $FELIX_KAFKA_CLIENTS has no java/: see tests/kafka/install")
        raise SystemExit(0)
    raise SystemExit(harness.main())
