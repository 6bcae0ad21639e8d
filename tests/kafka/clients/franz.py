"""franz-go, with kadm for administration."""

from __future__ import annotations

from clients.remote import Remote, home

TITLE = "franz-go"
HOME = home("go")


class Client(Remote):
    PROGRAM = [f"{HOME}/franz"]
