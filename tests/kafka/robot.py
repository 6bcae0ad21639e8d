"""Speaks to the Kafka listener byte by byte: what no client sends, and what clients stumbled over elsewhere.

    python tests/kafka/robot.py DIRECTORY_OF_OUR_PROGRAMS

Needs nothing beside Python. Starts `felixctl dev` with directories of its own and prints `N passed, N failed`.
"""

from __future__ import annotations

import pathlib
import socket
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "conformance"))

import harness  # noqa: E402
from harness import check  # noqa: E402

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR = 0, 1, 2, 3, 10
OFFSET_COMMIT, OFFSET_FETCH = 8, 9
CONSUMER_GROUP_HEARTBEAT = 68
SASL_HANDSHAKE, API_VERSIONS, INIT_PRODUCER_ID, SASL_AUTHENTICATE = 17, 18, 22, 36
MOST = 2**31 - 1


class Wire:
    """A connection that sends what it is told."""

    def __init__(self, node):
        host, port = node.kafka_bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.correlation = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, key: int, version: int, body: bytes, *, flexible: bool = False) -> int:
        self.correlation += 1
        head = struct.pack(">hhi", key, version, self.correlation) + text("robot") + (b"\0" if flexible else b"")
        self.send_bytes(struct.pack(">i", len(head + body)) + head + body)
        return self.correlation

    def receive(self) -> tuple[int, bytes]:
        """Correlation and body of the next answer."""
        (length,) = struct.unpack(">i", self.exactly(4))
        answer = self.exactly(length)
        return struct.unpack(">i", answer[:4])[0], answer[4:]

    def ask(self, key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
        sent = self.send(key, version, body, flexible=flexible)
        correlation, answer = self.receive()
        assert correlation == sent, (correlation, sent)
        return answer

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError(f"closed after {len(data)} of {count} bytes")
            data += more
        return data

    def is_closed(self) -> bool:
        """Whether the other side ends the connection without a word."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


def text(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    return struct.pack(">h", len(value.encode())) + value.encode()


def blob(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def array(*items: bytes) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


def lives(node) -> None:
    with Wire(node) as wire:
        assert wire.ask(API_VERSIONS, 0, b"")[:2] == b"\0\0"


def memory(node) -> int:
    """Resident bytes of the node."""
    for line in pathlib.Path(f"/proc/{node.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def closes(node, data: bytes) -> None:
    """What is sent ends the connection and costs the node nothing."""
    before = memory(node)
    with Wire(node) as wire:
        wire.send_bytes(data)
        assert wire.is_closed(), "the connection is open"
    assert memory(node) - before < 64 * 2**20
    lives(node)


def produce(topic: str, batch: bytes, version: int = 7, acks: int = -1) -> bytes:
    partition = struct.pack(">i", 0) + blob(batch)
    transactional = text(None) if version >= 3 else b""
    return transactional + struct.pack(">hi", acks, 5000) + array(text(topic) + array(partition))


def batch_of(count: int, records: bytes = b"", *, attributes: int = 0, producer=(-1, -1, -1), magic: int = 2) -> bytes:
    """A batch whose header says what it is told, with a checksum that fits."""
    last = max(count - 1, 0)
    covered = struct.pack(">hiqqqhii", attributes, last, 1000, 1000, *producer, count) + records
    head = struct.pack(">iBI", 0, magic, crc32c(covered))
    return struct.pack(">qi", 0, len(head) + len(covered)) + head + covered


def record(value: bytes, offset: int = 0) -> bytes:
    body = b"\0" + varint(0) + varint(offset) + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def produced(answer: bytes, topic: str) -> tuple[int, int]:
    """Error and base offset of the one partition of an answer in version 7."""
    at = 4 + 2 + len(topic) + 4 + 4
    return struct.unpack(">hq", answer[at : at + 10])


@check
def an_unknown_version_of_api_versions_is_answered_in_version_0_with_the_list(node):
    with Wire(node) as wire:
        answer = wire.ask(API_VERSIONS, 9, b"\x01\x02", flexible=True)
        error, count = struct.unpack(">hi", answer[:6])
        ranges = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[6:])}
        assert error == 35 and count == len(ranges)
        assert ranges[API_VERSIONS] == (0, 4)
        wire.ask(API_VERSIONS, 3, b"\x02a\x021\0", flexible=True)


@check
def what_clients_derive_abilities_from_is_announced(node):
    with Wire(node) as wire:
        answer = wire.ask(API_VERSIONS, 0, b"")
    ranges = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[6:])}
    assert ranges[PRODUCE][0] == 0 and ranges[PRODUCE][1] >= 7
    assert ranges[FETCH][1] >= 12 and FIND_COORDINATOR in ranges
    assert ranges[11][0] == 0 and ranges[SASL_HANDSHAKE][0] == 0
    assert not {71, 72, 76, 88} & ranges.keys()


@check
def a_topic_is_found_by_its_id_with_a_null_name_and_with_an_empty_one(node):
    topic = node.create_stream()
    name = bytes([len(topic) + 1]) + topic.encode()
    with Wire(node) as wire:
        answer = wire.ask(METADATA, 12, b"\x02" + bytes(16) + name + b"\0" + b"\0\0\0", flexible=True)
        place = answer.index(name) + len(name)
        topic_id = answer[place : place + 16]
        for absent in (b"\0", b"\x01"):
            answer = wire.ask(METADATA, 12, b"\x02" + topic_id + absent + b"\0" + b"\0\0\0", flexible=True)
            assert b"\0\0" + name + topic_id in answer, answer


@check
def a_request_of_20_bytes_that_announces_two_billion_topics_costs_nothing(node):
    body = struct.pack(">hhi", METADATA, 1, 1) + text("r") + struct.pack(">i", MOST)
    closes(node, struct.pack(">i", len(body)) + body)


@check
def a_compact_request_that_announces_two_billion_topics_costs_nothing(node):
    body = struct.pack(">hhi", METADATA, 9, 1) + text("r") + b"\0" + b"\xff\xff\xff\xff\x07"
    closes(node, struct.pack(">i", len(body)) + body)


@check
def a_request_of_66_bytes_that_announces_two_billion_records_is_refused_and_costs_nothing(node):
    topic = node.create_stream()
    before = memory(node)
    with Wire(node) as wire:
        answer = wire.ask(PRODUCE, 7, produce(topic, batch_of(MOST)))
        error, _ = produced(answer, topic)
        assert error in (2, 87), error
    assert memory(node) - before < 64 * 2**20
    lives(node)


@check
def frames_that_are_too_short_or_too_long_end_the_connection(node):
    for data in (
        struct.pack(">i", 2) + b"\0\x12",
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", MOST),
        b"\x16\x03\x01\x02\0\x01\0",
        b"GET / HTTP/1.1\r\n\r\n",
    ):
        closes(node, data)


@check
def garbage_in_every_request_is_refused_and_the_node_lives(node):
    with Wire(node) as wire:
        answer = wire.ask(API_VERSIONS, 0, b"")
    ranges = list(struct.iter_unpack(">hhh", answer[6:]))
    for key, low, high in ranges:
        for version in range(low, high + 1):
            for body in (b"\xff" * 40, b"\x7f" * 40, b"\0\0\0\x7f" * 10):
                with Wire(node) as wire:
                    wire.send(key, version, body, flexible=True)
                    wire.socket.shutdown(socket.SHUT_WR)
                    while wire.socket.recv(65536):
                        pass
    lives(node)


@check
def a_thousand_requests_at_once_are_answered_in_their_order(node):
    with Wire(node) as wire:
        body = array(text("orders"))
        sent = [wire.send(*((API_VERSIONS, 0, b"") if one % 3 else (METADATA, 1, body))) for one in range(1000)]
        assert [wire.receive()[0] for _ in sent] == sent


@check
def a_request_that_comes_byte_by_byte_is_answered(node):
    with Wire(node) as wire:
        data = struct.pack(">ihhi", 10 + 5, API_VERSIONS, 0, 77) + text("robot")
        for one in data:
            wire.send_bytes(bytes([one]))
        assert wire.receive()[0] == 77


@check
def produce_before_version_3_is_refused_in_its_own_shape(node):
    topic = node.create_stream()
    with Wire(node) as wire:
        for version in (0, 1, 2):
            answer = wire.ask(PRODUCE, version, produce(topic, batch_of(1, record(b"a")), version))
            assert produced(answer, topic)[0] == 35


@check
def a_batch_is_taken_once_and_read_back_as_it_was(node):
    topic = node.create_stream()
    batch = batch_of(2, record(b"one") + record(b"two", 1))
    with Wire(node) as wire:
        assert produced(wire.ask(PRODUCE, 7, produce(topic, batch)), topic) == (0, 0)
        assert produced(wire.ask(PRODUCE, 7, produce(topic, batch)), topic) == (0, 2)
        records = fetched(wire.ask(FETCH, 11, fetch(topic, 0)), topic)[2]
        assert records[:8] == struct.pack(">q", 0) and records[16:21] == batch[16:21]
        assert records[21 : len(batch)] == batch[21:]
        # From inside the first batch the whole of it comes.
        records = fetched(wire.ask(FETCH, 11, fetch(topic, 1)), topic)[2]
        assert records[:8] == struct.pack(">q", 0)


def fetch(
    topic: str, offset: int, *, wait: int = 0, least: int = 1, most: int = 2**20, epoch: int = -1, session: int = -1
) -> bytes:
    partition = struct.pack(">iiqqi", 0, epoch, offset, -1, most)
    topics = array(text(topic) + array(partition)) if topic else array()
    return struct.pack(">iiiibii", -1, wait, least, most, 0, 0, session) + topics + array() + text("")


def fetched(answer: bytes, topic: str) -> tuple[int, int, bytes]:
    """Error, high watermark and records of the one partition of an answer in version 11."""
    at = 4 + 2 + 4 + 4 + 2 + len(topic) + 4 + 4
    error, high = struct.unpack(">hq", answer[at : at + 10])
    aborted, replica, length = struct.unpack(">iii", answer[at + 26 : at + 38])
    assert (aborted, replica) == (-1, -1) and length >= 0, (aborted, replica, length)
    return error, high, answer[at + 38 : at + 38 + length]


@check
def an_empty_fetch_is_answered_with_empty_records_and_never_null(node):
    topic = node.create_stream()
    with Wire(node) as wire:
        assert fetched(wire.ask(FETCH, 11, fetch(topic, 0, wait=50)), topic) == (0, 0, b"")
        assert fetched(wire.ask(FETCH, 11, fetch(topic, 7)), topic)[0] == 1
        assert fetched(wire.ask(FETCH, 11, fetch("no-such-topic", 0)), "no-such-topic")[0] == 3


@check
def a_fetch_of_nothing_is_answered(node):
    with Wire(node) as wire:
        assert wire.ask(FETCH, 11, fetch("", 0, wait=20))[-4:] == b"\0\0\0\0"


@check
def a_fetch_gives_at_least_one_whole_batch(node):
    topic = node.create_stream()
    batch = batch_of(1, record(b"x" * 10_000))
    with Wire(node) as wire:
        wire.ask(PRODUCE, 7, produce(topic, batch))
        assert len(fetched(wire.ask(FETCH, 11, fetch(topic, 0, most=100)), topic)[2]) == len(batch)


@check
def a_fetch_waits_for_records_and_is_answered_when_they_come(node):
    topic = node.create_stream()
    with Wire(node) as reader, Wire(node) as writer:
        sent = reader.send(FETCH, 11, fetch(topic, 0, wait=20_000))
        writer.ask(PRODUCE, 7, produce(topic, batch_of(1, record(b"a"))))
        correlation, answer = reader.receive()
        error, high, records = fetched(answer, topic)
        assert correlation == sent and (error, high) == (0, 1) and records, (error, high, records)


@check
def a_repeated_batch_of_an_idempotent_producer_has_its_first_offset(node):
    topic = node.create_stream()
    with Wire(node) as wire:
        answer = wire.ask(INIT_PRODUCER_ID, 1, text(None) + struct.pack(">i", 0))
        error, producer, epoch = struct.unpack(">hqh", answer[4:16])
        assert error == 0
        batches = [batch_of(1, record(b"x"), producer=(producer, epoch, number)) for number in range(8)]
        for number in range(5):
            assert produced(wire.ask(PRODUCE, 7, produce(topic, batches[number])), topic) == (0, number)
        for number in range(5):
            assert produced(wire.ask(PRODUCE, 7, produce(topic, batches[number])), topic) == (0, number)
        assert produced(wire.ask(PRODUCE, 7, produce(topic, batches[6])), topic)[0] == 45
        assert produced(wire.ask(PRODUCE, 7, produce(topic, batches[5])), topic) == (0, 5)
        old = batch_of(1, record(b"x"), producer=(producer, epoch - 1, 9)) if epoch else None
        assert old is None or produced(wire.ask(PRODUCE, 7, produce(topic, old)), topic)[0] == 47


@check
def an_unknown_producer_may_begin_anywhere(node):
    topic = node.create_stream()
    with Wire(node) as wire:
        answer = wire.ask(INIT_PRODUCER_ID, 1, text(None) + struct.pack(">i", 0))
        producer, epoch = struct.unpack(">qh", answer[6:16])
        late = batch_of(1, record(b"x"), producer=(producer, epoch, 4711))
        assert produced(wire.ask(PRODUCE, 7, produce(topic, late)), topic) == (0, 0)


@check
def damaged_and_old_batches_are_refused_by_code(node):
    topic = node.create_stream()
    good = batch_of(1, record(b"a"))
    damaged = good[:-1] + bytes([good[-1] ^ 1])
    control = batch_of(1, record(b"a"), attributes=1 << 5)
    internal = batch_of(1, record(b"a"), attributes=1 << 8)
    transactional = batch_of(1, record(b"a"), attributes=1 << 4)
    with Wire(node) as wire:
        for batch, codes in (
            (damaged, (2,)),
            (good + good, (87,)),
            (b"", (87,)),
            (batch_of(1, record(b"a"), magic=1), (87,)),
            (control, (87,)),
            (internal, (87,)),
            (transactional, (53,)),
            (batch_of(2, record(b"a")), (2, 87)),
        ):
            error, _ = produced(wire.ask(PRODUCE, 7, produce(topic, batch)), topic)
            assert error in codes, (error, codes)
        assert fetched(wire.ask(FETCH, 11, fetch(topic, 0)), topic) == (0, 0, b"")


@check
def a_topic_that_is_named_20000_times_is_answered_once(node):
    topic = node.create_stream()
    with Wire(node) as wire:
        once = wire.ask(METADATA, 1, array(text(topic)))
        assert wire.ask(METADATA, 1, array(*[text(topic)] * 20_000)) == once


@check
def a_fetch_of_what_is_not_there_begins_no_session(node):
    topic = node.create_stream()
    with Wire(node) as wire:
        for name, has_session in ((topic, True), ("no-such-topic", False)):
            answer = wire.ask(FETCH, 11, fetch(name, 0, session=0))
            error, session = struct.unpack(">hi", answer[4:10])
            assert error == 0 and (session != 0) == has_session, (name, error, session)


@check
def fetches_behind_one_that_waits_are_answered_in_their_order(node):
    quiet, topic = node.create_stream(), node.create_stream()
    with Wire(node) as wire:
        wire.ask(PRODUCE, 7, produce(topic, batch_of(1, record(b"a"))))
        sent = [wire.send(FETCH, 11, fetch(quiet, 0, wait=500))]
        sent += [wire.send(FETCH, 11, fetch(topic, 0)) for _ in range(70)]
        received = [wire.receive() for _ in sent]
    assert [correlation for correlation, _ in received] == sent
    assert all(fetched(answer, topic)[2] for _, answer in received[1:])


@check
def a_member_of_the_first_version_of_the_consumer_protocol_gets_its_id(node):
    topic = node.create_stream()
    compact = lambda value: bytes([len(value) + 1]) + value.encode()  # noqa: E731
    body = compact("robot-consumer") + compact("") + struct.pack(">i", 0) + b"\0\0" + struct.pack(">i", 60_000)
    body += b"\x02" + compact(topic) + b"\0" + b"\x01" + b"\0"
    with Wire(node) as wire:
        answer = wire.ask(CONSUMER_GROUP_HEARTBEAT, 0, body, flexible=True)
    # Behind the tags of the header and the throttle time: error, message, id.
    assert answer[5:8] == b"\0\0\0" and answer[8] == 23, answer


@check
def acks_0_is_not_answered_and_an_error_ends_the_connection(node):
    topic = node.create_stream()
    with Wire(node) as wire:
        wire.send(PRODUCE, 7, produce(topic, batch_of(1, record(b"a")), acks=0))
        wire.ask(API_VERSIONS, 0, b"")
        assert fetched(wire.ask(FETCH, 11, fetch(topic, 0, wait=20_000)), topic)[2]
        wire.send(PRODUCE, 7, produce("no-such-topic", batch_of(1, record(b"a")), acks=0))
        assert wire.is_closed()
    with Wire(node) as wire:
        assert produced(wire.ask(PRODUCE, 7, produce(topic, batch_of(1, record(b"a")), acks=2)), topic)[0] == 21


@check
def the_record_of_a_time_is_found_inside_its_batch_whatever_the_order_of_times(node):
    topic = node.create_stream()

    def timed(*times: int) -> bytes:
        base = times[0]
        records = b""
        for offset, at in enumerate(times):
            body = b"\0" + varint(at - base) + varint(offset) + varint(-1) + varint(1) + b"v" + varint(0)
            records += varint(len(body)) + body
        count = len(times)
        covered = struct.pack(">hiqqqhii", 0, count - 1, base, max(times), -1, -1, -1, count) + records
        head = struct.pack(">iBI", 0, 2, crc32c(covered))
        return struct.pack(">qi", 0, len(head) + len(covered)) + head + covered

    with Wire(node) as wire:
        for batch in (timed(100, 300, 200), timed(50, 60), timed(250, 400)):
            error, _ = produced(wire.ask(PRODUCE, 7, produce(topic, batch)), topic)
            assert error == 0, error

        def at(time: int) -> tuple[int, int, int]:
            body = struct.pack(">ib", -1, 0) + array(text(topic) + array(struct.pack(">iq", 0, time)))
            answer = wire.ask(LIST_OFFSETS, 2, body)
            where = 4 + 4 + 2 + len(topic) + 4 + 4
            return struct.unpack(">hqq", answer[where : where + 18])

        assert at(-1) == (0, -1, 7) and at(-2) == (0, -1, 0)
        assert at(0) == (0, 100, 0)
        assert at(101) == (0, 300, 1)
        assert at(300) == (0, 300, 1)
        assert at(301) == (0, 400, 6)
        assert at(401) == (0, -1, -1)


@check
def transactions_are_refused_and_nothing_waits(node):
    with Wire(node) as wire:
        answer = wire.ask(FIND_COORDINATOR, 1, text("my-transaction") + b"\x01")
        (error,) = struct.unpack(">h", answer[4:6])
        assert error == 53 and b"transactions are not served" in answer
        answer = wire.ask(INIT_PRODUCER_ID, 1, text("my-transaction") + struct.pack(">i", 1000))
        assert struct.unpack(">h", answer[4:6]) == (53,)


@check
def positions_are_stable_when_a_transaction_was_refused(node):
    topic, group = node.create_stream(), "robot-stable"
    with Wire(node) as wire:
        answer = wire.ask(INIT_PRODUCER_ID, 1, text("my-transaction") + struct.pack(">i", 1000))
        assert struct.unpack(">h", answer[4:6]) == (53,)
        position = struct.pack(">iq", 0, 7) + text("")
        commit = text(group) + struct.pack(">i", -1) + text("") + struct.pack(">q", -1)
        wire.ask(OFFSET_COMMIT, 2, commit + array(text(topic) + array(position)))
        # Version 7 asks for positions that no open transaction may still change.
        name = bytes([len(topic) + 1]) + topic.encode()
        asked = bytes([len(group) + 1]) + group.encode() + b"\x02" + name + b"\x02\0\0\0\0\0" + b"\x01\0"
        answer = wire.ask(OFFSET_FETCH, 7, asked, flexible=True)
        place = answer.index(name) + len(name) + 1
        partition, offset = struct.unpack(">iq", answer[place : place + 12])
        epoch_and_metadata = 4 + 1
        (error,) = struct.unpack(">h", answer[place + 12 + epoch_and_metadata :][:2])
        assert (partition, offset, error) == (0, 7, 0), answer


@check
def an_unknown_mechanism_is_refused_with_the_list(node):
    with Wire(node) as wire:
        answer = wire.ask(SASL_HANDSHAKE, 1, text("GSSAPI"))
        assert struct.unpack(">h", answer[:2]) == (33,)
        assert b"PLAIN" in answer and b"OAUTHBEARER" in answer
        assert wire.is_closed()


@check
def a_login_with_the_tenant_and_a_token_has_a_life(node):
    with Wire(node) as wire:
        assert wire.ask(SASL_HANDSHAKE, 1, text("PLAIN"))[:2] == b"\0\0"
        answer = wire.ask(SASL_AUTHENTICATE, 1, blob(f"\0{node.tenant}\0{node.token}".encode()))
        error = struct.unpack(">h", answer[:2])[0]
        (life,) = struct.unpack(">q", answer[-8:])
        assert error == 0 and life > 0, (error, life, answer)
        wire.ask(METADATA, 1, array(text("orders")))


@check
def a_wrong_token_is_refused_in_words_and_ends_the_connection(node):
    with Wire(node) as wire:
        wire.ask(SASL_HANDSHAKE, 1, text("PLAIN"))
        answer = wire.ask(SASL_AUTHENTICATE, 1, blob(f"\0{node.tenant}\0{node.token}x".encode()))
        assert struct.unpack(">h", answer[:2]) == (58,)
        assert wire.is_closed()


@check
def a_refused_bearer_hears_it_in_the_words_of_the_mechanism_first(node):
    with Wire(node) as wire:
        wire.ask(SASL_HANDSHAKE, 1, text("OAUTHBEARER"))
        answer = wire.ask(SASL_AUTHENTICATE, 1, blob(b"n,,\x01auth=Bearer nonsense\x01\x01"))
        assert answer[:2] == b"\0\0" and b"invalid_token" in answer
        answer = wire.ask(SASL_AUTHENTICATE, 1, blob(b"\x01"))
        assert struct.unpack(">h", answer[:2]) == (58,)
        assert wire.is_closed()


@check
def a_bearer_token_logs_in_and_the_answer_is_empty(node):
    with Wire(node) as wire:
        wire.ask(SASL_HANDSHAKE, 1, text("OAUTHBEARER"))
        answer = wire.ask(SASL_AUTHENTICATE, 1, blob(f"n,,\x01auth=Bearer {node.token}\x01\x01".encode()))
        error, message, length = struct.unpack(">hhi", answer[:8])
        assert (error, message, length) == (0, -1, 0)


if __name__ == "__main__":
    raise SystemExit(harness.main())
