"""IBM/sarama."""

from __future__ import annotations

from clients.remote import Remote, home

TITLE = "sarama"
HOME = home("go")


class Client(Remote):
    PROGRAM = [f"{HOME}/sarama"]
    # It has no KIP-848.
    LACKS = frozenset({"consumes_with_the_consumer_protocol"})
