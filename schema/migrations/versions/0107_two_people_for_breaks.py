"""Who has ever had a break assigned neither resolves it nor makes its event."""

from typing import Final

from cardledger.schema.migrations import functions

revision = "0107"
down_revision = "0106"

# A break that was given to another person is still one that its former owner has worked on.
_OWNER: Final = "    ELSIF b.owner = session_user THEN\n"
_EVER: Final = """    ELSIF b.owner <> session_user AND EXISTS (
        SELECT FROM break_history h WHERE h.break_id = b.id AND h.owner = session_user
    ) THEN
        RAISE EXCEPTION 'break % was assigned to %: another person must resolve it, who never'
            ' worked on it', b.id, session_user USING ERRCODE = 'object_not_in_prerequisite_state';
"""
_FUNCTIONS: Final = ("close_break(uuid, text, text)", "make_event_of_break(uuid, text)")


def upgrade() -> None:
    """Change the functions."""
    for function in _FUNCTIONS:
        functions.change(function, _OWNER, _EVER + _OWNER)


def downgrade() -> None:
    """Only the present owner is refused."""
    for function in _FUNCTIONS:
        functions.change(function, _EVER, "")
