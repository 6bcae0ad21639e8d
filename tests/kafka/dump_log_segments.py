#!/usr/bin/env python3
"""Lets Kafka's own DumpLogSegments read segments that our journal wrote, and compares every batch and record: of a log
as it was written, and of one that was compacted.

Needs cargo, and what tests/kafka/install puts into the directory that $FELIX_KAFKA_CLIENTS names. Exits with 0 when Kafka and
our inspection agree on every offset, count, size, position, time, checksum, key, value and header, and when Kafka finds
nothing wrong with our indexes.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import jvm

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

BATCH = re.compile(
    r"^baseOffset: (?P<base>\d+) lastOffset: (?P<last>\d+) count: (?P<count>\d+) .*?partitionLeaderEpoch: (?P<epoch>\d+)"
    r".*? position: (?P<position>\d+) CreateTime: (?P<time>-?\d+) size: (?P<size>\d+) magic: (?P<magic>\d+)"
    r" compresscodec: (?P<codec>\w+) crc: \d+ isvalid: (?P<valid>\w+)"
)
RECORD = re.compile(
    r"^\| offset: (?P<offset>\d+) CreateTime: (?P<time>-?\d+) keySize: (?P<key_size>-?\d+) valueSize: (?P<value_size>-?\d+)"
    r" sequence: -?\d+ headerKeys: \[(?P<headers>[^\]]*)\](?: key: (?P<key>\S*))?(?: payload: (?P<value>.*))?$"
)


def write_segments(directory, *how):
    """Our own view of what we wrote: every record, and the inspection of the files."""
    example = ["cargo", "run", "--quiet", "-p", "felix-journal", "--example", "kafka_segments"]
    command = [*example, "--", str(directory), *how]
    written = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(written.stdout)


def dump(files, *arguments):
    """What Kafka's tool prints about these files."""
    command = jvm.command(f"{jvm.TOOLS}.DumpLogSegments", *arguments, "--files", ",".join(map(str, files)))
    dumped = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if dumped.returncode != 0:
        sys.exit(f"FAILED: Kafka's tool: {dumped.stderr}")
    return dumped.stdout.splitlines()


def expect(what, found, wanted):
    if found != wanted:
        sys.exit(f"FAILED: {what}: Kafka says {found!r}, we say {wanted!r}")


def read(lines):
    """The segments, batches and records in Kafka's output."""
    segments = []
    for line in lines:
        if line.startswith("Dumping "):
            segments.append({"file": pathlib.Path(line.removeprefix("Dumping ")).name, "batches": [], "records": []})
        elif line.startswith("Log starting offset: "):
            segments[-1]["start"] = int(line.rsplit(" ", 1)[1])
        elif found := BATCH.match(line):
            segments[-1]["batches"].append(found.groupdict())
        elif found := RECORD.match(line):
            segments[-1]["records"].append(found.groupdict())
        elif line.strip():
            sys.exit(f"FAILED: not understood: {line}")
    return segments


def compare_segments(found, wanted):
    expect("segments", [segment["file"] for segment in found], [segment["file"] for segment in wanted])
    for theirs, ours in zip(found, wanted):
        name, batches = theirs["file"], theirs["batches"]
        expect(f"{name}: start", theirs["start"], ours["base"])
        expect(f"{name}: batches", len(batches), ours["batches"])
        expect(f"{name}: records", sum(int(batch["count"]) for batch in batches), ours["records"])
        expect(f"{name}: records read", len(theirs["records"]), ours["records"])
        expect(f"{name}: bytes", sum(int(batch["size"]) for batch in batches), ours["bytes"])
        if not ours["compacted"]:
            expect(f"{name}: next offset", int(batches[-1]["last"]) + 1, ours["next"])
        elif int(batches[-1]["last"]) >= ours["next"]:
            sys.exit(f"FAILED: {name}: a batch reaches past {ours['next']}")
        expect(f"{name}: largest time", max(int(batch["time"]) for batch in batches), ours["max_timestamp"])
        expect(f"{name}: generation", int(batches[-1]["epoch"]), ours["last_generation"])
        expect(f"{name}: checksums", {batch["valid"] for batch in batches}, {"true"} if ours["valid"] else {"false"})
        expect(f"{name}: our checksums", ours["valid"], True)
        position = 0
        for batch in batches:
            expect(f"{name}: position", int(batch["position"]), position)
            position += int(batch["size"])


def compare_records(found, wanted):
    expect("records", len(found), len(wanted))
    for theirs, ours in zip(found, wanted):
        name = f"record {ours['offset']}"
        expect(f"{name}: offset", int(theirs["offset"]), ours["offset"])
        expect(f"{name}: time", int(theirs["time"]), ours["time"])
        expect(f"{name}: key", theirs["key"] if int(theirs["key_size"]) >= 0 else None, ours["key"])
        expect(f"{name}: value", theirs["value"] if int(theirs["value_size"]) >= 0 else None, ours["value"])
        expect(f"{name}: headers", [key for key in theirs["headers"].split(",") if key], ours["headers"])


def compare_indexes(directory):
    """Kafka prints one entry a line, and complains about each that does not fit the log."""
    for ending in ("index", "timeindex"):
        files = sorted(directory.glob(f"*.{ending}"))
        entries = 0
        for line in dump(files):
            if re.match(r"^(offset: \d+ position: \d+|timestamp: \d+ offset: \d+)$", line):
                entries += 1
            elif not line.startswith("Dumping ") and line.strip():
                sys.exit(f"FAILED: {ending}: {line}")
        size = {"index": 8, "timeindex": 12}[ending]
        expect(f"{ending} entries", entries, sum(file.stat().st_size for file in files) // size)
        if entries < len(files):
            sys.exit(f"FAILED: only {entries} entries in {len(files)} {ending} files")
        for line in dump(files, "--index-sanity-check"):
            if not line.startswith("Dumping ") and "passed sanity check" not in line and line.strip():
                sys.exit(f"FAILED: {ending} sanity: {line}")
        yield ending, entries


def check(*how):
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(scratch) / "events-0"
        ours = write_segments(directory, *how)
        inspection = ours["inspection"]
        expect("verdict", inspection["verdict"], "clean")
        files = [directory / segment["file"] for segment in inspection["segments"]]
        found = read(dump(files, "--deep-iteration", "--print-data-log"))
        compare_segments(found, inspection["segments"])
        compare_records([record for segment in found for record in segment["records"]], ours["records"])
        batches = [batch for segment in found for batch in segment["batches"]]
        codecs = sorted({batch["codec"] for batch in batches})
        expect("codecs", codecs, ["gzip", "lz4", "none", "snappy", "zstd"])
        thin = [batch for batch in batches if int(batch["last"]) - int(batch["base"]) + 1 > int(batch["count"])]
        if how:
            expect("codecs of thin batches", sorted({batch["codec"] for batch in thin}), codecs)
        else:
            expect("thin batches", len(thin), 0)
        indexes = dict(compare_indexes(directory))
    print(
        f"ok: Kafka read {inspection['records']} records in {inspection['batches']} batches, {len(thin)} of them thin,"
        f" of {len(files)} segments ({', '.join(codecs)}), {indexes['index']} index and {indexes['timeindex']} time index"
        f" entries, and agrees"
    )


def main():
    if not jvm.is_there():
        print("SKIPPED: $FELIX_KAFKA_CLIENTS has no java/: see tests/kafka/install")
        return
    check()
    check("compacted")


if __name__ == "__main__":
    main()
