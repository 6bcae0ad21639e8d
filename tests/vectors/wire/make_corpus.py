#!/usr/bin/env python3
"""Makes the fuzz corpora of the native protocol from the vectors beside this file.

Run it from anywhere; it rewrites tests/fixtures/fuzz/{frame,message,publish,extension} and leaves files
whose name begins with `found-` alone.
"""
import pathlib
import re

HERE = pathlib.Path(__file__).parent
FUZZ = HERE.parent.parent / "fixtures" / "fuzz"
AUTH = (
    b'{"type":"auth","tenant_id":"t1","token":"tok","client_flags":32767,'
    b'"client_features":4294967295,"client_features_hi":31,"extensions":["records","requests"]}'
)


def rows(name, columns):
    for line in (HERE / name).read_text().split("\n"):
        if line and not line.startswith("#"):
            cells = [cell.removeprefix(" ") for cell in line.split(" |", columns - 1)]
            yield cells + [""] * (columns - len(cells))


def frame(payload, flags=0):
    return b"FLX1\x00\x01" + flags.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload


def unhex(text):
    return bytes.fromhex(text.replace(" ", ""))


def file_name(name):
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60]


class Corpus:
    def __init__(self, target):
        self.folder = FUZZ / target
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.iterdir():
            if not path.name.startswith("found-"):
                path.unlink()

    def add(self, name, data):
        path = self.folder / file_name(name)
        count = 1
        while path.exists():
            count += 1
            path = self.folder / f"{file_name(name)}-{count}"
        path.write_bytes(data)


def main():
    frames = [(name, unhex(text)) for name, text in rows("frames.txt", 2)]
    ours = [(name, unhex(text)) for name, text in rows("extension.txt", 2)]
    calls = [(name, unhex(text)) for name, text in rows("requests.txt", 2)]
    calls += [(name, unhex(text)) for name, text in rows("raw.txt", 2)]
    messages = [(name, text.encode()) for name, _, text in rows("messages.txt", 3)]
    odd = list(rows("refused.txt", 4))

    corpus = Corpus("frame")
    hello = frame(AUTH)
    for name, data in frames + ours:
        corpus.add(name, hello + data)
    for name, data in messages:
        if name.startswith("auth"):
            corpus.add(name, frame(data))
    for name, verdict, what, data in odd:
        if what == "frame":
            corpus.add(f"{verdict} {name}", hello + unhex(data))
            corpus.add(f"first {name}", unhex(data))
    asked = b"".join(frame(data) for _, data in messages)
    corpus.add("every message", hello + asked)
    corpus.add("every binary frame", hello + b"".join(data for _, data in frames))
    corpus.add("every frame of ours", hello + b"".join(data for _, data in ours))
    corpus.add("every call", hello + b"".join(data for _, data in calls))
    corpus.add("too long before auth", frame(b"")[:8] + (65537).to_bytes(4, "big"))

    corpus = Corpus("message")
    for name, data in messages:
        corpus.add(name, data)
    for name, verdict, what, data in odd:
        if what == "message":
            corpus.add(f"{verdict} {name}", data.encode())

    corpus = Corpus("publish")
    for name, data in frames:
        if name.startswith("publish"):
            corpus.add(name, data[12:])
            corpus.add(f"{name} cut", data[12:-3])
            claim = bytearray(data[12:])
            claim[-9:-5] = b"\xff\xff\xff\xff"
            corpus.add(f"{name} claim", bytes(claim))
    for name, verdict, what, data in odd:
        if what == "frame":
            corpus.add(f"{verdict} {name}", unhex(data)[12:])

    corpus = Corpus("extension")
    for name, data in ours:
        corpus.add(name, data[4:])
        corpus.add(f"{name} cut", data[4:-6])
        flagged = bytearray(data[4:])
        flagged[2] = 0x80
        corpus.add(f"{name} with an unknown flag", bytes(flagged))
    for name, data in calls:
        corpus.add(name, data[4:])
    corpus.add("unknown kind", unhex("7f01 0000 0000000000000005 00000000"))
    corpus.add("a length nobody sends", unhex("0101 0000 0000000000000005 ffffffff"))


if __name__ == "__main__":
    main()
