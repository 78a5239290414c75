"""The decrypted keys that sign the webhooks of an endpoint."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from sqlalchemy import Connection

from cardledger.ledger.storage.engines import driver as driver_of
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.storage.secrets.sealed_columns import (
    ENDPOINT_SECRET,
    FORMER_ENDPOINT_SECRET,
    LATER_SIGNING_KEY,
    SIGNING_KEY,
    WEBHOOK_SECRET,
)
from cardledger.ledger.webhooks import signatures
from cardledger.schema.ids import Id


@dataclass(frozen=True, slots=True)
class Signer:
    """An endpoint's decrypted keys: keep them for a short time, and never log them."""

    private_key: EllipticCurvePrivateKey = field(repr=False)
    secret: str = field(repr=False)
    former_secrets: tuple[str, ...] = field(default=(), repr=False)

    def sign(self, body: bytes, *, webhook_id: str, at: datetime) -> dict[str, str]:
        """Return the four signature headers of `body`."""
        return signatures.sign(
            body,
            webhook_id=webhook_id,
            at=at,
            private_key=self.private_key,
            secret=self.secret,
            former_secrets=self.former_secrets,
        )


# The current signing key: the latest whose `signs_from` has passed, else the platform's first.
_KEYS: Final = """
    SELECT p.id, k.id, coalesce(k.private_key, p.signing_key),
        e.secret IS NOT NULL, coalesce(e.secret, p.webhook_secret),
        CASE WHEN e.former_secret_until > %(at)s THEN e.former_secret END
    FROM webhook_endpoints e JOIN platforms p ON p.id = e.platform_id
        LEFT JOIN LATERAL (
            SELECT k.id, k.private_key FROM webhook_signing_keys k
            WHERE k.platform_id = p.id AND k.signs_from <= %(at)s
            ORDER BY k.signs_from DESC, k.id DESC LIMIT 1) k ON true
    WHERE e.id = %(endpoint)s
"""


def signer_for(connection: Connection, endpoint_id: Id, keys: KeyRing, *, at: datetime) -> Signer:
    """Return the signer of an endpoint at the time `at`.

    Raises: SecretsError when the keys were encrypted with another server key.
    """
    arguments = {"endpoint": endpoint_id, "at": at}
    row = driver_of(connection).execute(_KEYS, arguments).fetchone()
    assert row is not None, f"no endpoint {endpoint_id}"
    platform_id, key_id, signing_key, has_own_secret, secret, former = row
    signs = (
        SIGNING_KEY.of(platform_id, platform_id)
        if key_id is None
        else LATER_SIGNING_KEY.of(platform_id, key_id)
    )
    authenticates = (
        ENDPOINT_SECRET.of(platform_id, endpoint_id)
        if has_own_secret
        else WEBHOOK_SECRET.of(platform_id, platform_id)
    )
    formerly = FORMER_ENDPOINT_SECRET.of(platform_id, endpoint_id)
    return Signer(
        private_key=signatures.load_private_key(keys.decrypt(signing_key, signs)),
        secret=keys.decrypt(secret, authenticates).decode(),
        former_secrets=(keys.decrypt(former, formerly).decode(),) if former else (),
    )
