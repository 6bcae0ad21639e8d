"""Writes the vectors of this folder: record batches made by encoders that share no code with ours.

    python3 -m venv /tmp/vectors && . /tmp/vectors/bin/activate
    pip install kafka-python==3.0.12 aiokafka==0.14.0 python-snappy==0.7.3 lz4==4.4.5 zstandard==0.25.0
    python make.py

Each file holds the batch as hex, what it was made from, and who made it. Batches "by kafka-python" and
"by aiokafka" come whole from those clients. Batches "by hand" are laid out below, after the drawing in
Kafka's documentation, and cover what those clients do not send.
"""

import gzip
import json
import pathlib
import random
import struct

import lz4.frame
import snappy
import zstandard
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record._crc32c import crc as crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

HERE = pathlib.Path(__file__).parent
TIME = 1_760_000_000_000

FEW = [
    (TIME, "order-1", "first", [("trace", "a1"), ("empty", ""), ("none", None)]),
    (TIME + 7, None, "no key", []),
    (TIME - 3, "order-1", None, []),
    (TIME + 7, "", "", []),
    (TIME + 40, "日本", "x" * 200, [("trace", "a2"), ("trace", "a3")]),
]
MANY = [(TIME + i, f"user:{i % 5}", f'{{"n":{i},"state":"the same again"}}', []) for i in range(40)]
LARGE = [(TIME, "big", {"repeat": "0123456789abcde", "times": 20_000}, [])]

CODES = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def raw(text):
    if text is None:
        return None
    if isinstance(text, dict):
        return text["repeat"].encode() * text["times"]
    return text.encode()


def foreign(builder, codec, records, producer=None):
    extra = {} if producer is None else producer
    made = builder(
        magic=2,
        compression_type=CODES[codec],
        is_transactional=extra.get("transactional", False),
        producer_id=extra.get("id", -1),
        producer_epoch=extra.get("epoch", -1),
        base_sequence=extra.get("sequence", -1),
        batch_size=1 << 30,
    )
    for offset, (time, key, value, headers) in enumerate(records):
        made.append(
            offset,
            timestamp=time,
            key=raw(key),
            value=raw(value),
            headers=[(name, raw(content)) for name, content in headers],
        )
    return bytes(made.build())


def varint(value):
    value = (value << 1) ^ (value >> 63)
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def nullable(data):
    return varint(-1) if data is None else varint(len(data)) + data


def by_hand(records, attributes=0, squeeze=lambda body: body, producer=(-1, -1, -1), deltas=None,
            base=0, epoch=0, last_delta=None, append_time=None):
    deltas = deltas or list(range(len(records)))
    first = records[0][0] if records else 0
    body = b""
    for delta, (time, key, value, headers) in zip(deltas, records):
        record = b"\0" + varint(time - first) + varint(delta) + nullable(raw(key)) + nullable(raw(value))
        record += varint(len(headers))
        for name, content in headers:
            content = content if isinstance(content, bytes) or content is None else raw(content)
            record += nullable(name.encode()) + nullable(content)
        body += varint(len(record)) + record
    latest = append_time if append_time is not None else max((r[0] for r in records), default=0)
    last = deltas[-1] if last_delta is None else last_delta
    counted = struct.pack(">hiqqqhii", attributes, last, first, latest, *producer, len(records))
    counted += squeeze(body)
    front = struct.pack(">qiib", base, len(counted) + 9, epoch, 2)
    return front + struct.pack(">I", crc32c(counted)) + counted


def digest(payloads):
    """The payload digest of the native protocol's idempotent producers."""
    mask = (1 << 64) - 1
    state = 0x243F6A8885A308D3

    def fold(word):
        nonlocal state
        wide = (state ^ word) * 0x9E3779B97F4A7C15
        turned = ((word << 32) | (word >> 32)) & mask
        state = (wide & mask) ^ (wide >> 64) ^ turned

    for payload in payloads:
        fold(len(payload))
        for start in range(0, len(payload), 8):
            fold(int.from_bytes(payload[start : start + 8], "little"))
    fold(len(payloads))
    return state


def write(name, made_by, batch, records, **expected):
    lines = [batch.hex()[i : i + 96] for i in range(0, len(batch) * 2, 96)]
    expected["records"] = [
        {"time": time, "key": key, "value": value, "headers": headers}
        for time, key, value, headers in records
    ]
    vector = {"made_by": made_by, "batch": lines, **expected}
    (HERE / f"{name}.json").write_text(json.dumps(vector, ensure_ascii=False, indent=1) + "\n")


def clients():
    builders = [
        ("kafka-python", "kafka-python 3.0.12", KafkaPythonBuilder),
        ("aiokafka", "aiokafka 0.14.0", AiokafkaBuilder),
    ]
    for short, long, builder in builders:
        write(f"{short}-none", long, foreign(builder, "none", FEW), FEW, compression="none")
        for codec in ["gzip", "snappy", "lz4", "zstd"]:
            write(f"{short}-{codec}", long, foreign(builder, codec, MANY), MANY, compression=codec)
        producer = {"id": 4_000_000_001, "epoch": 3, "sequence": 77, "transactional": True}
        write(f"{short}-transactional", long, foreign(builder, "none", FEW, producer), FEW,
              compression="none", producer=4_000_000_001)


def framings():
    linked = dict(block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB)
    checked = dict(block_size=lz4.frame.BLOCKSIZE_MAX4MB, content_checksum=True,
                   block_checksum=True, store_size=True)
    half = lambda body: len(body) // 2
    forms = {
        "snappy-raw": ("snappy", snappy.compress, MANY),
        "lz4-linked": ("lz4", lambda body: lz4.frame.compress(body, **linked), LARGE),
        "lz4-checked": ("lz4", lambda body: lz4.frame.compress(body, **checked), MANY),
        "lz4-two-frames": ("lz4", lambda body: lz4.frame.compress(body[: half(body)])
                           + lz4.frame.compress(body[half(body):]), MANY),
        "gzip-two-members": ("gzip", lambda body: gzip.compress(body[: half(body)], mtime=0)
                             + gzip.compress(body[half(body):], mtime=0), MANY),
        "zstd-no-size": ("zstd", zstandard.ZstdCompressor(write_content_size=False).compress, MANY),
        "zstd-two-frames": ("zstd", lambda body: zstandard.compress(body[: half(body)])
                            + zstandard.compress(body[half(body):]), MANY),
    }
    for name, (codec, squeeze, records) in forms.items():
        batch = by_hand(records, CODES[codec], squeeze)
        write(f"hand-{name}", "by hand", batch, records, compression=codec)


def logged():
    """Batches as they stand in a log: patched, compacted, marked."""
    write("hand-compacted", "by hand",
          by_hand(FEW, deltas=[0, 1, 4, 6, 7], base=1000, epoch=5, last_delta=9), FEW,
          compression="none", base=1000, next=1010, generation=5, deltas=[0, 1, 4, 6, 7])
    write("hand-emptied", "by hand", by_hand([], base=1000, epoch=5, last_delta=9, deltas=[0]), [],
          compression="none", base=1000, next=1010, generation=5)
    write("hand-append-time", "by hand", by_hand(FEW, 1 << 3, append_time=TIME + 999),
          [(TIME + 999, *rest) for _, *rest in FEW], compression="none")
    write("hand-control", "by hand",
          by_hand([(TIME, "\0\0\0\1", "\0\0\0\0\0\7", [])], 1 << 5 | 1 << 4, producer=(9, 0, -1)),
          [(TIME, "\0\0\0\1", "\0\0\0\0\0\7", [])], compression="none", producer=9, control=True)


def native():
    """What the broker makes of a native publish."""
    payloads = ["one", "", "three " * 30, "4"]
    lists = struct.pack(">I", len(payloads))
    for payload in payloads:
        lists += struct.pack(">I", len(payload)) + payload.encode()
    sequence = (5 << 31) + 12
    internal = [("@", "alice"), ("#", struct.pack(">Q", sequence))]
    cases = [
        ("plain", None, {}, [], 0, (-1, -1, -1)),
        ("keyed", "order-1", {}, [], 0, (-1, -1, -1)),
        ("empty-key", "", {}, [], 0, (-1, -1, -1)),
        ("internal", "order-1", {"publisher": "alice", "sequence": sequence}, internal, 1 << 8,
         (4_000_000_001, 0, 12)),
    ]
    for name, key, kept, headers, attributes, producer in cases:
        records = [(TIME, key, payload, headers if i == 0 else []) for i, payload in enumerate(payloads)]
        batch = by_hand(records, attributes, producer=producer)
        shown = [(time, key, value, []) for time, key, value, _ in records]
        if kept:
            kept = {**kept, "producer": producer[0]}
        write(f"native-{name}", "by hand", batch, shown, compression="none", payloads=lists.hex(),
              digest=f"{digest([p.encode() for p in payloads]):016x}", **kept)


def corpus():
    """Inputs for the fuzz target `batch`: every vector, and what an attacker would make of it."""
    folder = HERE.parent.parent / "fixtures" / "fuzz" / "batch"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if not old.name.startswith("found-"):
            old.unlink()
    chance = random.Random(60)

    def keep(name, data):
        (folder / name).write_bytes(bytes(data))

    for path in sorted(HERE.glob("*.json")):
        batch = bytes.fromhex("".join(json.loads(path.read_text())["batch"]))
        keep(path.stem, batch)
        keep(f"{path.stem}-cut", batch[: chance.randrange(len(batch))])
        flipped = bytearray(batch)
        for _ in range(chance.randrange(1, 6)):
            flipped[chance.randrange(61, len(batch)) if len(batch) > 61 else 60] ^= 1 << chance.randrange(8)
        keep(f"{path.stem}-flipped", flipped)
    few = by_hand(FEW)
    for at, width in [(0, 8), (8, 4), (23, 4), (27, 8), (35, 8), (57, 4), (61, 5), (63, 5), (67, 5)]:
        for value in [b"\x7f" + b"\xff" * (width - 1), b"\xff" * width, b"\xff" * (width - 1) + b"\x0f"]:
            data = bytearray(few)
            data[at : at + width] = value
            keep(f"hostile-{at}-{value[:1].hex()}{value[-1:].hex()}", data)
    zeros = bytes(40 << 20)
    for codec, squeeze in [("gzip", lambda d: gzip.compress(d, mtime=0)), ("zstd", zstandard.compress),
                           ("lz4", lambda d: lz4.frame.compress(d[: 6 << 20]))]:
        keep(f"bomb-{codec}", by_hand(FEW, CODES[codec], lambda _: squeeze(zeros)))
    keep("payload-list", bytes.fromhex("00000003000000016100000000000000026263"))
    keep("payload-list-claim", bytes.fromhex("7fffffff0000000161"))


clients()
framings()
logged()
native()
corpus()
