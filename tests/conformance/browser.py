"""A browser in so far as the gateway can tell: a WebSocket over a plain socket and the messages of protocol version 1,
written from RFC 6455 and the protocol's page alone. And an identity provider that signs whatever it is asked to."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import os
import pathlib
import socket
import struct
import subprocess
import threading
import time
import urllib.error
import urllib.request
from typing import Iterator

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
PATIENCE = 20.0


class Closed(Exception):
    """The gateway closed; `code` says why."""

    def __init__(self, code: int | None, reason: str):
        super().__init__(f"closed with {code}: {reason}")
        self.code, self.reason = code, reason


class Browser:
    """One socket. Reading skips nothing: what is not asked for is kept for whoever asks for it later."""

    def __init__(self, address: str, *, origin: str | None = None, cookie: str | None = None, source: str | None = None):
        host, port = address.rsplit(":", 1)
        local = (source, 0) if source else None
        self.socket = socket.create_connection((host, int(port)), PATIENCE, local)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = [
            "GET /ws HTTP/1.1",
            f"Host: {address}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
            "Sec-WebSocket-Version: 13",
        ]
        lines += [f"Origin: {origin}"] if origin else []
        lines += [f"Cookie: {cookie}"] if cookie else []
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        self.received = b""
        head = self._until(b"\r\n\r\n").decode()
        self.status = int(head.split(" ", 2)[1])
        self.kept: list[dict] = []
        self.answers_pings = True

    def _fill(self, deadline: float) -> None:
        self.socket.settimeout(max(0.01, deadline - time.monotonic()))
        more = self.socket.recv(1 << 16)
        if not more:
            raise Closed(None, "the connection ended")
        self.received += more

    def _until(self, end: bytes) -> bytes:
        deadline = time.monotonic() + PATIENCE
        while end not in self.received:
            self._fill(deadline)
        head, self.received = self.received.split(end, 1)
        return head

    def _frame(self, deadline: float) -> tuple[int, bytes]:
        """The next whole frame. Nothing is taken before all of it is there, so a timeout loses nothing."""
        while True:
            have = self.received
            if len(have) >= 2:
                length, at = have[1] & 127, 2
                assert not have[1] & 128, "a server's frames are not masked"
                if length == 126 and len(have) >= 4:
                    length, at = struct.unpack(">H", have[2:4])[0], 4
                elif length == 127 and len(have) >= 10:
                    length, at = struct.unpack(">Q", have[2:10])[0], 10
                elif length >= 126:
                    length = 1 << 62
                if len(have) >= at + length:
                    self.received = have[at + length :]
                    return have[0] & 15, have[at : at + length]
            self._fill(deadline)

    def send_frame(self, kind: int, payload: bytes) -> None:
        mask = os.urandom(4)
        length = len(payload)
        if length < 126:
            head = bytes([0x80 | kind, 0x80 | length])
        elif length < 1 << 16:
            head = struct.pack(">BBH", 0x80 | kind, 0x80 | 126, length)
        else:
            head = struct.pack(">BBQ", 0x80 | kind, 0x80 | 127, length)
        key = int.from_bytes((mask * (length // 4 + 1))[:length], "big")
        masked = (int.from_bytes(payload, "big") ^ key).to_bytes(length, "big") if length else b""
        self.socket.settimeout(PATIENCE)
        self.socket.sendall(head + mask + masked)

    def say(self, kind: str, **fields) -> None:
        self.send_frame(TEXT, json.dumps({"type": kind, **fields}).encode())

    def say_text(self, text: str) -> None:
        self.send_frame(TEXT, text.encode())

    def publish_binary(self, stream: int, payload: bytes, *, ack: bool, id: int) -> None:
        head = struct.pack("<BBHIQQQ", 2, 32, 1 if ack else 0, stream, id, 0, 0)
        self.send_frame(BINARY, head + payload)

    def hear(self, seconds: float = PATIENCE) -> dict:
        """The next message. A binary event comes as a message with its header taken apart."""
        deadline = time.monotonic() + seconds
        while True:
            kind, payload = self._frame(deadline)
            if kind == PING:
                if self.answers_pings:
                    self.send_frame(PONG, payload)
            elif kind == TEXT:
                return json.loads(payload)
            elif kind == BINARY:
                return binary_event(payload)
            elif kind == CLOSE:
                code = struct.unpack(">H", payload[:2])[0] if len(payload) >= 2 else None
                with contextlib.suppress(OSError):
                    self.send_frame(CLOSE, payload[:2])
                raise Closed(code, payload[2:].decode())

    def expect(self, kind: str, seconds: float = PATIENCE, **fields) -> dict:
        """The first message of this kind with these fields; others are kept."""

        def fits(message: dict) -> bool:
            return message.get("type") == kind and all(message.get(name) == value for name, value in fields.items())

        for place, message in enumerate(self.kept):
            if fits(message):
                return self.kept.pop(place)
        deadline = time.monotonic() + seconds
        while True:
            message = self.hear(max(0.01, deadline - time.monotonic()))
            if fits(message):
                return message
            self.kept.append(message)
            refused = message.get("type") == "error" and message.get("id") is not None
            assert not refused or message["id"] != fields.get("id"), f"{kind} was awaited, this came: {message}"

    def error(self, code: str, **fields) -> dict:
        return self.expect("error", code=code, **fields)

    def events(self, count: int, **fields) -> list[dict]:
        return [self.expect("event", **fields) for _ in range(count)]

    def closed(self, seconds: float = PATIENCE) -> Closed:
        """Reads until the gateway closes."""
        deadline = time.monotonic() + seconds
        try:
            while True:
                self.kept.append(self.hear(max(0.01, deadline - time.monotonic())))
        except Closed as closed:
            return closed

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_) -> None:
        self.close()


def binary_event(frame: bytes) -> dict:
    kind, head = frame[0], frame[1]
    assert kind == 1, f"a binary frame of kind {kind}"
    sub, offset = struct.unpack("<IQ", frame[4:16])
    event = {"type": "event", "binary": True, "sub": sub, "payload": b64(frame[head:])}
    event["offset"] = None if offset == (1 << 64) - 1 else offset
    if head == 32:
        event["skipped_before"], event["time"] = struct.unpack("<QQ", frame[16:32])
    else:
        assert head == 40, head
        event["skipped_before"], _, event["received"], event["handed"] = struct.unpack("<IIQQ", frame[16:40])
    return event


def b64(payload: bytes) -> str:
    return base64.b64encode(payload).decode()


def unb64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def get(url: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes, dict]:
    """Status, body and headers of a request, whatever the status."""
    request = urllib.request.Request(url, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read(), dict(error.headers)


class Provider:
    """An identity provider with one RSA key. People are what a test says they are. Port 0 picks a free one."""

    def __init__(self, directory: pathlib.Path, port: int = 0):
        self.key = directory / "provider.pem"
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(self.key))
        modulus = openssl("rsa", "-in", str(self.key), "-noout", "-modulus").decode().strip().split("=")[1]
        jwk = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "k1", "e": "AQAB", "n": url64(bytes.fromhex(modulus))}
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                documents = {
                    "/.well-known/openid-configuration": {
                        "issuer": provider.issuer,
                        "jwks_uri": f"{provider.issuer}/keys",
                        "authorization_endpoint": f"{provider.issuer}/authorize",
                        "token_endpoint": f"{provider.issuer}/token",
                        "response_types_supported": ["code"],
                        "subject_types_supported": ["public"],
                        "id_token_signing_alg_values_supported": ["RS256"],
                    },
                    "/keys": {"keys": [jwk]},
                }
                document = documents.get(self.path)
                body = json.dumps(document).encode()
                self.send_response(200 if document else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def sign_in(self, person: str, *, groups: list[str], client: str = "page", seconds: int = 3600) -> str:
        """An ID token for this person."""
        now = int(time.time())
        claims = {"iss": self.issuer, "sub": person, "aud": client, "iat": now, "exp": now + seconds, "groups": groups}
        head = {"alg": "RS256", "kid": "k1", "typ": "JWT"}
        signed = ".".join(url64(json.dumps(part).encode()) for part in (head, claims))
        signature = openssl("dgst", "-sha256", "-sign", str(self.key), stdin=signed.encode())
        return f"{signed}.{url64(signature)}"


def url64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def openssl(*arguments: str, stdin: bytes | None = None) -> bytes:
    return subprocess.run(["openssl", *arguments], input=stdin, check=True, capture_output=True).stdout


@contextlib.contextmanager
def provider(directory: pathlib.Path) -> Iterator[Provider]:
    one = Provider(directory)
    try:
        yield one
    finally:
        one.server.shutdown()
