"""The decrypted keys that sign the webhooks of an endpoint."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from sqlalchemy import Connection

from cardledger.ledger.storage.engines import driver as driver_of
from cardledger.ledger.storage.secrets import KeyRing
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
_SIGNING_KEY: Final = """
    coalesce(
        (SELECT k.private_key FROM webhook_signing_keys k
         WHERE k.platform_id = p.id AND k.signs_from <= %(at)s
         ORDER BY k.signs_from DESC, k.id DESC LIMIT 1),
        p.signing_key)
"""

_KEYS: Final = f"""
    SELECT {_SIGNING_KEY}, coalesce(e.secret, p.webhook_secret),
        CASE WHEN e.former_secret_until > %(at)s THEN e.former_secret END
    FROM webhook_endpoints e JOIN platforms p ON p.id = e.platform_id WHERE e.id = %(endpoint)s
"""


def signer_for(connection: Connection, endpoint_id: Id, keys: KeyRing, *, at: datetime) -> Signer:
    """Return the signer of an endpoint at the time `at`.

    Raises: SecretsError when the keys were encrypted with another server key.
    """
    arguments = {"endpoint": endpoint_id, "at": at}
    row = driver_of(connection).execute(_KEYS, arguments).fetchone()
    assert row is not None, f"no endpoint {endpoint_id}"
    signing_key, secret, former_secret = row
    return Signer(
        private_key=signatures.load_private_key(keys.decrypt(signing_key)),
        secret=keys.decrypt(secret).decode(),
        former_secrets=(keys.decrypt(former_secret).decode(),) if former_secret else (),
    )
