"""Client of cardledger: network events in, outcomes out; cards and card transactions.

    from cardledger_client import Client

    with Client("http://127.0.0.1:8000", f"{client_id}:{client_secret}") as ledger:
        [outcome] = ledger.events([{"type": "AUTHORIZATION", ...}])

`AsyncClient` does the same in an event loop. `cardledger_client.sql` and `cardledger_client.django`
enqueue events in your own database transaction; `cardledger_client.webhooks` verifies webhooks.
"""

from cardledger_client.async_client import AsyncClient
from cardledger_client.client import Client
from cardledger_client.errors import Error
from cardledger_client.resources import (
    Accepted,
    Card,
    CardTransaction,
    Event,
    Lane,
    Outcome,
)
from cardledger_client.version import VERSION

__version__ = VERSION

__all__ = [
    "Accepted",
    "AsyncClient",
    "Card",
    "CardTransaction",
    "Client",
    "Error",
    "Event",
    "Lane",
    "Outcome",
    "__version__",
]
