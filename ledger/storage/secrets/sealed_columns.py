"""The columns whose values are encrypted with the server key, and what each value is bound to."""

from dataclasses import dataclass
from typing import Final

from cardledger.ledger.storage.secrets.key_ring import Location


@dataclass(frozen=True, slots=True)
class SealedColumn:
    """A column of sealed values. `key` identifies a row among those of the platform `tenant`."""

    table: str
    column: str
    key: str = "id"
    tenant: str = "platform_id"

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns of the table's primary key, in their order."""
        return (self.key,) if self.key == "id" else (self.tenant, self.key)

    def of(self, platform_id: bytes, row: bytes | str) -> Location:
        """Return the location of the value in the row `row` of a platform."""
        key = row.encode() if isinstance(row, str) else bytes(row)
        return Location(self.table, self.column, bytes(platform_id), key)


SIGNING_KEY: Final = SealedColumn("platforms", "signing_key", tenant="id")
WEBHOOK_SECRET: Final = SealedColumn("platforms", "webhook_secret", tenant="id")
LATER_SIGNING_KEY: Final = SealedColumn("webhook_signing_keys", "private_key")
ENDPOINT_SECRET: Final = SealedColumn("webhook_endpoints", "secret")
FORMER_ENDPOINT_SECRET: Final = SealedColumn("webhook_endpoints", "former_secret")
CUSTOMER_IDENTIFIER: Final = SealedColumn("customers", "identifier")
OWNER_IDENTIFIER: Final = SealedColumn("beneficial_owners", "identifier")
TOTP_SECRET: Final = SealedColumn("customer_authentication", "totp_secret")
DOCUMENT_KEY: Final = SealedColumn("documents", "content_key")
DOCUMENT_NUMBER: Final = SealedColumn("documents", "document_number")
ANSWER: Final = SealedColumn("idempotency_keys", "answer", key="key")

ALL: Final = (
    SIGNING_KEY,
    WEBHOOK_SECRET,
    LATER_SIGNING_KEY,
    ENDPOINT_SECRET,
    FORMER_ENDPOINT_SECRET,
    CUSTOMER_IDENTIFIER,
    OWNER_IDENTIFIER,
    TOTP_SECRET,
    DOCUMENT_KEY,
    DOCUMENT_NUMBER,
    ANSWER,
)
"""Every sealed column; `cardledger keys rotate` seals them again."""
