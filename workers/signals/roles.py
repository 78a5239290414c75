"""What a worker process may be for."""

from enum import StrEnum


class WorkerRole(StrEnum):
    """What a worker process does, where others do the rest."""

    EVENTS = "events"
    WEBHOOKS = "webhooks"
