"""An identity provider of the tests' own: a discovery document, one key, and tokens for whoever asks."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import pathlib
import subprocess
import tempfile
import threading
import time
from typing import Iterator

AUDIENCE = "kafka-clients"


class Provider:
    """A running provider; `issuer` is its URL."""

    def __init__(self, directory: pathlib.Path):
        self.key = directory / "key.pem"
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(self.key))
        modulus = openssl("rsa", "-in", str(self.key), "-noout", "-modulus").decode().strip().split("=")[1]
        self.jwk = {
            "kty": "RSA", "use": "sig", "alg": "RS256", "kid": "one", "e": "AQAB", "n": encode(bytes.fromhex(modulus)),
        }
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"

    @property
    def token_url(self) -> str:
        return f"{self.issuer}/token"

    def token(self, subject: str = "worker", seconds: int = 600) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer, "sub": subject, "aud": AUDIENCE, "iat": now, "exp": now + seconds, "groups": ["writers"],
        }
        head = {"alg": "RS256", "kid": "one", "typ": "JWT"}
        text = ".".join(encode(json.dumps(part).encode()) for part in (head, claims))
        signature = openssl("dgst", "-sha256", "-sign", str(self.key), data=text.encode())
        return f"{text}.{encode(signature)}"

    def answer(self, path: str) -> dict | None:
        return {
            "/.well-known/openid-configuration": {
                "issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys", "token_endpoint": self.token_url,
            },
            "/keys": {"keys": [self.jwk]},
        }.get(path)


def handler(provider: Provider):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.say(provider.answer(self.path))

        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            given = {"access_token": provider.token(), "token_type": "Bearer", "expires_in": 600}
            self.say(given if self.path == "/token" else None)

        def say(self, body):
            data = json.dumps(body).encode()
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    return Handler


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def openssl(*arguments: str, data: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *arguments], input=data, check=True, capture_output=True).stdout


@contextlib.contextmanager
def start() -> Iterator[Provider]:
    with tempfile.TemporaryDirectory() as directory:
        provider = Provider(pathlib.Path(directory))
        thread = threading.Thread(target=provider.server.serve_forever, daemon=True)
        thread.start()
        try:
            yield provider
        finally:
            provider.server.shutdown()
            provider.server.server_close()
            thread.join()
