"""The signers of endpoints, with decrypted keys, for a short time."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Engine

from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.webhooks.signers import Signer, signer_for
from cardledger.schema.ids import Id

# A compromised key must not sign for long after it was replaced.
_TIME_TO_LIVE: Final = timedelta(seconds=5)


class SignerCache:
    """Signers by endpoint; they expire soon, so that a new key takes effect soon.

    A changed endpoint has another version, so its new secret signs at once. An expired signer is
    loaded by a single thread, because many threads need it at the same time.
    """

    def __init__(self, engine: Engine, keys: KeyRing, clock: Callable[[], datetime]) -> None:
        self._engine: Final = engine
        self._keys: Final = keys
        self._clock: Final = clock
        self._loading: Final = threading.Lock()
        # By endpoint: its version, when the signer expires, the signer.
        self._signers: dict[Id, tuple[datetime, datetime, Signer]] = {}

    def get(self, endpoint_id: Id, endpoint_version: datetime) -> Signer:
        """Return the signer of an endpoint's webhooks.

        Raises: SecretsError when the server key cannot decrypt its keys.
        """
        now = self._clock()
        if signer := self._cached(endpoint_id, endpoint_version, now):
            return signer
        with self._loading:
            if signer := self._cached(endpoint_id, endpoint_version, now):
                return signer
            with self._engine.connect() as connection:
                signer = signer_for(connection, endpoint_id, self._keys, at=now)
            # Those that have expired go: their keys are not kept in memory, nor those of endpoints
            # that were deleted.
            self._signers = {key: kept for key, kept in self._signers.items() if now < kept[1]}
            self._signers[endpoint_id] = endpoint_version, now + _TIME_TO_LIVE, signer
            return signer

    def __len__(self) -> int:
        """Return of how many endpoints signers are kept."""
        return len(self._signers)

    def _cached(self, endpoint_id: Id, endpoint_version: datetime, now: datetime) -> Signer | None:
        version, expires_at, signer = self._signers.get(endpoint_id, (None, now, None))
        return signer if version == endpoint_version and now < expires_at else None
