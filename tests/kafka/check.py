"""Compares what Kafka's DumpLogSegments says of our segments with what was written into them.

    python3 check.py DIRECTORY_OF_JARS DIRECTORY_OF_THE_LOG WHAT_WAS_WRITTEN.json
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

PAIR = re.compile(r"(\w+): (\[[^\]]*\]|\S+)")


def dump(jars: str, *arguments: str) -> str:
    command = ["java", "-cp", f"{jars}/*", "org.apache.kafka.tools.DumpLogSegments", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, f"{' '.join(arguments)}\n{run.stdout[-2000:]}\n{run.stderr[-2000:]}"
    return run.stdout


def read(text: str) -> list[dict]:
    """The batches of a dump, each with its records."""
    batches: list[dict] = []
    for line in text.splitlines():
        if line.startswith("baseOffset: "):
            batches.append({**fields(line), "records": []})
        elif line.startswith("| offset: "):
            batches[-1]["records"].append(fields(line.removeprefix("| ")))
    return batches


def fields(line: str) -> dict[str, str]:
    return dict(PAIR.findall(line))


def same(kafka: dict, ours: dict) -> None:
    expected = {
        "baseOffset": ours["base_offset"],
        "lastOffset": ours["last_offset"],
        "count": ours["count"],
        "partitionLeaderEpoch": ours["generation"],
        "producerId": ours["producer_id"],
        "position": ours["position"],
        "size": ours["size"],
        "compresscodec": ours["codec"],
        "crc": ours["crc"],
        "magic": 2,
        "isvalid": "true",
    }
    for name, value in expected.items():
        assert kafka.get(name) == str(value), f"{name}: Kafka says {kafka.get(name)}, we wrote {value}: {kafka}"
    assert len(kafka["records"]) == len(ours["records"]), kafka
    for theirs, record in zip(kafka["records"], ours["records"]):
        assert theirs["offset"] == str(record["offset"]), (theirs, record)
        assert theirs["keySize"] == str(record["key_size"]), (theirs, record)
        assert theirs["valueSize"] == str(record["value_size"]), (theirs, record)
        headers = [name.strip() for name in theirs["headerKeys"].strip("[]").split(",") if name.strip()]
        assert headers == record["headers"], (theirs, record)
        if "CreateTime" in theirs:
            assert theirs["CreateTime"] == str(record["time"]), (theirs, record)


def main(jars: str, log: str, written: str) -> int:
    ours = json.loads(pathlib.Path(written).read_text())
    segments = sorted(pathlib.Path(log).glob("*.log"))
    assert len(segments) > 2, f"{segments}: not enough segments to prove anything"
    passed = 0
    batches = []
    for segment in segments:
        found = read(dump(jars, "--deep-iteration", "--files", str(segment)))
        assert found and int(segment.stem) == int(found[0]["baseOffset"]), segment
        batches += found
    assert len(batches) == len(ours), f"Kafka finds {len(batches)} batches, we wrote {len(ours)}"
    for kafka, batch in zip(batches, ours):
        same(kafka, batch)
        passed += 1
    for kind in ("index", "timeindex"):
        for index in sorted(pathlib.Path(log).glob(f"*.{kind}")):
            text = dump(jars, "--index-sanity-check", "--files", str(index))
            assert "passed sanity check" in text, text
            text = dump(jars, "--verify-index-only", "--files", str(index))
            assert "mismatch" not in text.lower() and "Indexed" not in text, text
            passed += 1
    print(f"{len(segments)} segments, {len(batches)} batches, {sum(len(one['records']) for one in ours)} records")
    print(f"{passed} passed, 0 failed")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
