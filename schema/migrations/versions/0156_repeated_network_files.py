"""A settlement file under another name is not booked again."""

from typing import Final

from cardledger.schema.migrations import functions

revision = "0156"
down_revision = "0155"

_FINISH: Final = "finish_network_file(uuid, text, jsonb)"
_KEEP: Final = "    UPDATE network_files f SET digest = sha256,\n"
_COLUMNS: Final = (
    "l.type, l.amount, l.currency, l.reference, l.network_reference, l.token, l.card_id,"
    " l.merchant_amount, l.merchant_currency, l.interchange, l.transaction_date, l.merchant, l.mcc"
)
# Lines are compared where the totals agree. Without a reference they may be equal and not the same:
# a fee of each of two files, or two shipments of a purchase, which have its network reference.
_COMPARE: Final = f"""    SELECT quote_literal(o.file_id) || ', imported at ' || o.imported_at
    INTO wrong
    FROM network_files f
    JOIN network_files o ON (o.settlement_date, o.network, o.platform_id)
            = (f.settlement_date, f.network, f.platform_id)
        AND o.cycle IS NOT DISTINCT FROM f.cycle AND o.id <> f.id AND o.digest IS NOT NULL
    WHERE f.id = file
        AND EXISTS (
            SELECT FROM network_lines l
            WHERE l.file_id = file AND l.reference IS NOT NULL
        )
        AND NOT EXISTS (
            SELECT FROM (SELECT * FROM network_file_totals s WHERE s.file_id = f.id) own
            FULL JOIN (SELECT * FROM network_file_totals s WHERE s.file_id = o.id) other
                ON other.currency = own.currency
            WHERE (own.lines, own.amount, own.interchange)
                IS DISTINCT FROM (other.lines, other.amount, other.interchange)
        )
        AND NOT EXISTS (
            SELECT {_COLUMNS} FROM network_lines l WHERE l.file_id = f.id
            EXCEPT ALL
            SELECT {_COLUMNS} FROM network_lines l WHERE l.file_id = o.id
        )
    LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'the lines are those of file %', wrong USING ERRCODE = 'CL006';
    END IF;
"""


def upgrade() -> None:
    """Compare with the files of the same day and cycle."""
    functions.change(_FINISH, _KEEP, _COMPARE + _KEEP)


def downgrade() -> None:
    """Compare no more."""
    functions.change(_FINISH, _COMPARE, "")
