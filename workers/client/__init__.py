"""Submit network events and wait for their outcomes.

from cardledger.workers.client import submit

outcomes = submit(events, database_url=..., redis_url=..., secret_key=...)
"""

from cardledger.workers.client.errors import OverloadedError, ReplyTimeoutError, UnavailableError
from cardledger.workers.client.parsing import Numbered, Unreadable
from cardledger.workers.client.submission import Client, submit

__all__ = [
    "Client",
    "Numbered",
    "OverloadedError",
    "ReplyTimeoutError",
    "UnavailableError",
    "Unreadable",
    "submit",
]
