"""Values of arguments, and what is shown of them; nothing heavy is imported."""

from datetime import UTC, datetime
from typing import Any

from cardledger.config.errors import USAGE, CommandError
from cardledger.schema.ids import Id


def key_of(text: str, resource: str, option: str) -> Id:
    """Return the id in `text`: a UUID, alone or after `resource` and a colon.

    Raises: CommandError, a usage error that names `option`.
    """
    try:
        return Id.parse(text.removeprefix(f"{resource}:"))
    except ValueError:
        raise CommandError(
            f"{option} {printable(text)}: not an id; write {resource}:<uuid> or the UUID alone",
            code=USAGE,
        ) from None


def time_of(text: str, option: str) -> datetime:
    """Return the time in `text`, which is UTC unless it names an offset.

    Raises: CommandError, a usage error that names `option`.
    """
    try:
        moment = datetime.fromisoformat(text)
        # A time near the first or the last one has no equivalent in UTC.
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise CommandError(
            f"{option} {printable(text)}: not a time; write it like 2026-03-01T12:00:00Z",
            code=USAGE,
        ) from None


def printable(value: Any) -> str:  # noqa: ANN401 - anything that a cell shows
    """Return `value` as text without characters that a terminal obeys."""
    if value is None:
        return "-"
    return "".join(char if char.isprintable() else "?" for char in str(value))
