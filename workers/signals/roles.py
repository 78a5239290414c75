"""The roles of worker processes."""

from enum import StrEnum


class WorkerRole(StrEnum):
    """What a worker process does when other processes do the rest."""

    EVENTS = "events"
    WEBHOOKS = "webhooks"
