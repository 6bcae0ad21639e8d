"""kafkajs from npm, with the codecs that it leaves to others."""

from __future__ import annotations

from clients.remote import HERE, Remote, home

TITLE = "kafkajs"
HOME = home("kafkajs")


class Client(Remote):
    PROGRAM = ["node", str(HERE / "kafkajs" / "driver.js")]
    ENVIRONMENT = {"FELIX_NODE_MODULES": str(HOME), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    # It knows neither members with names of their own, nor cooperative assignors, nor KIP-848.
    LACKS = frozenset({
        "keeps_its_place_as_static_member", "rebalances_cooperatively", "consumes_with_the_consumer_protocol",
    })
