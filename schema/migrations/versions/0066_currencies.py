"""Every currency of ISO 4217, with its decimals, and its name in JSON that PostgreSQL makes."""

import json
from typing import Final

from alembic import op

from cardledger.schema.wire.common import CURRENCIES

revision = "0066"
down_revision = "0065"

_BEFORE: Final = ("USD", "EUR", "GBP", "INR", "MXN", "JPY", "USDC", "USDB", "BTC")

# Whatever else later revisions have made of the function, it has the currencies as one literal.
_REPLACE: Final = r"""
DO $do$ DECLARE
    definition text := pg_get_functiondef('card_transaction_json(uuid)'::regprocedure);
    changed text := regexp_replace(
        definition, '''[^'']*''::jsonb -> t\.currency', '''__NEW__''::jsonb -> t.currency');
BEGIN
    IF changed = definition AND position('AED' IN definition) = 0 THEN
        RAISE EXCEPTION 'card_transaction_json has no currencies';
    END IF;
    EXECUTE changed;
END $do$
"""

_REMOVE_UNUSED: Final = """
DO $do$ BEGIN
    IF EXISTS (SELECT FROM system_accounts WHERE currency <> ALL ('{before}')) THEN
        RAISE EXCEPTION 'platforms use currencies that the release before does not know';
    END IF;
    DELETE FROM currencies WHERE code <> ALL ('{before}');  -- Some 150 rows, which nothing reads.
END $do$
"""


def upgrade() -> None:
    """Add the currencies, and replace the literal in the function."""
    values = ", ".join(
        f"('{code}', {info.decimals})" for code, info in CURRENCIES.items() if code not in _BEFORE
    )
    op.execute(f"INSERT INTO currencies (code, decimals) VALUES {values}")
    currencies = json.dumps({code: info.wire() for code, info in CURRENCIES.items()})
    assert "'" not in currencies
    assert "\\0" not in currencies
    op.execute(_REPLACE.replace("__NEW__", currencies.replace("\\u", "\\\\u")))


def downgrade() -> None:
    """Remove the currencies again; refused once a platform uses one. The function may know more."""
    before = "{" + ",".join(_BEFORE) + "}"
    op.execute(_REMOVE_UNUSED.format(before=before))
