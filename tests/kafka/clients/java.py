"""Kafka's own clients for Java."""

from __future__ import annotations

from clients.remote import Remote, home

TITLE = "Java kafka-clients"
HOME = home("java")


class Client(Remote):
    PROGRAM = [
        "java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-cp", f"{HOME}/classes:{(HOME / 'classpath').read_text().strip() if HOME else ''}", "Driver",
    ]
