"""The settings that a page may show: each by its name, so that no secret is among them."""

from collections.abc import Mapping, Sequence
from typing import Final

SHOWN: Final[Mapping[str, str]] = {
    "sandbox": "CARDLEDGER_SANDBOX",
    "loopback_webhooks": "CARDLEDGER_LOOPBACK_WEBHOOKS",
    "sandbox_delay_s": "CARDLEDGER_SANDBOX_DELAY_S",
    "reply_timeout_s": "CARDLEDGER_REPLY_TIMEOUT_S",
    "body_timeout_s": "CARDLEDGER_BODY_TIMEOUT_S",
    "rate_limit": "CARDLEDGER_RATE_LIMIT",
    "failure_limit": "CARDLEDGER_FAILURE_LIMIT",
    "in_progress_limit": "CARDLEDGER_IN_PROGRESS_LIMIT",
    "exchange_spread_bps": "CARDLEDGER_EXCHANGE_SPREAD_BPS",
    "document_bytes": "CARDLEDGER_DOCUMENT_BYTES",
    "documents_dir": "CARDLEDGER_DOCUMENTS_DIR",
    "public_url": "CARDLEDGER_PUBLIC_URL",
}
"""The variables by the fields of the configuration of the API. URLs of databases have passwords."""


def shown(config: object) -> Sequence[tuple[str, str]]:
    """Return the name and the value of each setting of the API's `config` that may be shown."""
    values = {name: getattr(config, field) for field, name in SHOWN.items()}
    return [(name, _text(value)) for name, value in values.items()]


def _text(value: object) -> str:
    if value is None:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value)
