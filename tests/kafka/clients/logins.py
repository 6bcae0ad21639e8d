"""The rows about logging in over TLS, in terms of what each client does as somebody."""

from __future__ import annotations

import time

from clients import rows

# Long enough that a login must have been renewed twice.
WORK_SECONDS = 65.0


class Logins:
    """Needs `topics_as(at)`, the names of the topics that somebody sees, and `works_as(at, topic)`, which sends something
    now and then until WORK_SECONDS are over, in one connection as far as it is the client's to say."""

    def speaks_tls(self):
        assert "orders" in self.topics_as(self.secure.at("PLAIN", self.secure.token))

    def logs_in_with_a_service_account(self):
        assert "orders" in self.topics_as(self.secure.at("PLAIN", self.secure.service_key))

    def logs_in_with_a_provider(self):
        """A client that can ask the provider itself does; the others are given a token."""
        provider, extensions = self.secure.provider, {"tenant": self.secure.tenant}
        at = self.secure.at("OAUTHBEARER", provider.token(), extensions=extensions, token_url=provider.token_url)
        assert "orders" in self.topics_as(at)

    def renews_its_login(self):
        """Run for all clients at once and beside the other rows, so that nobody waits for it."""
        topic = self.secure.node.create_stream()
        self.works_as(self.secure.at("PLAIN", self.secure.service_key), topic)
        assert self.secure.metric("felix_kafka_sessions_expired_total") == 0

    @staticmethod
    def at_work(send) -> None:
        """Calls something twice a second for long enough."""
        until = time.monotonic() + WORK_SECONDS
        rows.until(lambda: (send(), time.sleep(0.5), time.monotonic() > until)[2], WORK_SECONDS + rows.PATIENCE)
