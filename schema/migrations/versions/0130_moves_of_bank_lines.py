"""A move of SETTLEMENT_BANK books what a line of the bank is, and the line is booked once."""

from pathlib import Path
from typing import Final

from alembic import op

from cardledger.schema.migrations import functions

revision = "0130"
down_revision = "0129"

_COMMENT: Final = (
    "Of a MOVE of SETTLEMENT_BANK: the break BANK_ONLY whose line it books (breaks.id); null: there"
    " was no statement of the bank yet, or it is a reversal."
)
_REVERSES: Final = (
    "Of a MOVE that is a reversal: the move of SETTLEMENT_BANK without a line that it takes back"
    " (adjustments.id)."
)

_PREPARING: Final = "prepare_adjustment()"
_ACCOUNTS: Final = "        FOREACH account IN ARRAY ARRAY[NEW.from_kind, NEW.to_kind] LOOP\n"
_TAKEN_BACK: Final = (
    """        IF NEW.reverses_id IS NOT NULL THEN
            SELECT r.platform_id, r.currency, r.amount, r.to_kind, r.from_kind
            INTO NEW.platform_id, NEW.currency, NEW.amount, NEW.from_kind, NEW.to_kind
            FROM reversed_move(NEW.reverses_id) r;
        END IF;
"""
    + _ACCOUNTS
)
_RETURN: Final = """the amount must be 1 to 9223372036854775807 minor units'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
"""
_BOOK: Final = (
    _RETURN
    + """    IF NEW.break_id IS NOT NULL
        OR ('SETTLEMENT_BANK' IN (NEW.from_kind, NEW.to_kind) AND NEW.reverses_id IS NULL)
    THEN
        PERFORM check_bank_move(NEW.id, NEW.break_id, NEW.platform_id, NEW.currency,
            NEW.from_kind, NEW.to_kind, NEW.amount);
    END IF;
"""
)
_GUARD: Final = "guard_adjustment()"
_DECIDED: Final = "        NEW.decided_by := session_user;\n"
# The first statement may have come since it was prepared.
_CHECKED: Final = """        IF NEW.state = 'APPROVED'
            AND num_nonnulls(NEW.break_id, NEW.reverses_id) = 0
            AND 'SETTLEMENT_BANK' IN (NEW.from_kind, NEW.to_kind)
        THEN
            PERFORM check_bank_move(NEW.id, NULL, NEW.platform_id, NEW.currency, NEW.from_kind,
                NEW.to_kind, NEW.amount);
        END IF;
"""

_CLOSING: Final = "close_break(uuid, text, text)"
_NOTE: Final = "    ELSIF b.state NOT IN ('open', 'investigating') THEN\n"
# What closes the break of a line says that it is booked, or that it will not be.
_BOOKED: Final = (
    """    ELSIF as_state = 'resolved' AND b.kind = 'BANK_ONLY'
        AND b.state IN ('open', 'investigating') AND moved_of_break(b.id) <> abs(b.file_amount)
    THEN
        RAISE EXCEPTION 'the line of break % moved % minor units of %, and moves have booked % of'
            ' them: prepare and approve a move that names the break, or close it as written_off',
            b.id, abs(b.file_amount), b.currency, moved_of_break(b.id)
            USING ERRCODE = 'object_not_in_prerequisite_state';
"""
    + _NOTE
)

_MATCHING: Final = "match_bank(uuid, text)"
_BEGIN: Final = """    progress boolean := true;
BEGIN
"""
_LOCK: Final = (
    _BEGIN
    + """    -- The lock of the commands: no move is prepared of a line that is being matched.
    PERFORM pg_advisory_xact_lock(hashtext('cardledger settlement files'));
"""
)
_OPEN: Final = """ AND s.currency = currency_code
        UNION ALL
        SELECT b.*, true"""
# What a move books, or is to book, pays no day.
_OPEN_WITHOUT_MOVES: Final = """ AND s.currency = currency_code AND NOT EXISTS (
            SELECT FROM adjustments j
            WHERE j.break_id = k.id AND j.state NOT IN ('REJECTED', 'REFUSED')
        )
        UNION ALL
        SELECT b.*, true"""

_CHECK: Final = "check_bank_move(uuid, uuid, uuid, text, text, text, bigint)"
_REVERSED: Final = "reversed_move(uuid)"
_MOVED: Final = "moved_of_break(uuid)"

# Entries say what was moved, and the column says for which line: the line would be booked again.
_NOTHING_WAS_BOOKED: Final = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM adjustments WHERE num_nonnulls(break_id, reverses_id) > 0) THEN
        RAISE EXCEPTION 'moves of bank lines have moved money: their entries stay, so do they';
    END IF;
END $$
"""


def upgrade() -> None:
    """Add the columns and the checks of what is prepared; the line of a move is not matched."""
    op.execute("ALTER TABLE adjustments ADD COLUMN break_id UUID, ADD COLUMN reverses_id UUID")
    op.execute(f"COMMENT ON COLUMN adjustments.break_id IS '{_COMMENT}'")
    op.execute(f"COMMENT ON COLUMN adjustments.reverses_id IS '{_REVERSES}'")
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
    functions.protect(_CHECK)
    functions.protect(_REVERSED)
    functions.protect(_MOVED)
    functions.change(_CLOSING, _NOTE, _BOOKED)
    functions.change(_PREPARING, _ACCOUNTS, _TAKEN_BACK)
    functions.change(_PREPARING, _RETURN, _BOOK)
    functions.change(_GUARD, _DECIDED, _CHECKED + _DECIDED)
    functions.protect(_GUARD)  # It has to find the check.
    functions.change(_MATCHING, _BEGIN, _LOCK)
    functions.change(_MATCHING, _OPEN, _OPEN_WITHOUT_MOVES)


def downgrade() -> None:
    """Remove them; refused once a move has booked a line."""
    op.execute(_NOTHING_WAS_BOOKED)
    functions.change(_MATCHING, _OPEN_WITHOUT_MOVES, _OPEN)
    functions.change(_MATCHING, _LOCK, _BEGIN)
    op.execute(f"ALTER FUNCTION {_GUARD} SET search_path = pg_catalog, pg_temp")
    functions.change(_GUARD, _CHECKED + _DECIDED, _DECIDED)
    functions.change(_PREPARING, _BOOK, _RETURN)
    functions.change(_PREPARING, _TAKEN_BACK, _ACCOUNTS)
    functions.change(_CLOSING, _BOOKED, _NOTE)
    op.execute(f"DROP FUNCTION {_CHECK}, {_REVERSED}, {_MOVED}")
    op.execute("ALTER TABLE adjustments DROP COLUMN break_id, DROP COLUMN reverses_id")
