"""Tables of the command line: what is shown at which width."""

import io

from rich.console import Console

from cardledger.commands.daily import tables
from cardledger.commands.daily.tables import Column

COLUMNS = (
    Column(name="id", keep=True),
    Column(name="status", keep=True),
    Column(name="merchant"),
    Column(name="card"),
)
ROW = ("i" * 36, "AUTHORIZED", "CHEZ ROUX PARIS", "c" * 36)


def shown(width: int, *, is_terminal: bool = True) -> str:
    stream = io.StringIO()
    out = Console(
        file=stream, width=width, force_terminal=is_terminal, color_system=None, soft_wrap=True
    )
    tables.show(out, COLUMNS, [ROW])
    return stream.getvalue()


def test_a_wide_terminal_shows_every_column() -> None:
    assert all(cell in shown(120) for cell in ROW)


def test_a_narrow_terminal_shows_whole_ids_and_says_what_is_missing() -> None:
    text = shown(80)

    assert ROW[0] in text
    assert "CHEZ ROUX PARIS" in text
    assert "no room for card; --json has them" in text
    assert max(map(len, text.splitlines())) <= 80


def test_an_id_is_whole_at_any_width() -> None:
    assert ROW[0] in shown(20)


def test_a_pipe_gets_every_column() -> None:
    text = shown(20, is_terminal=False)

    assert all(cell in text for cell in ROW)
    assert len(text.splitlines()) == 2


def test_a_cell_cannot_command_the_terminal() -> None:
    stream = io.StringIO()

    tables.show(Console(file=stream, width=80), [Column(name="x")], [["a\x1b[31mb\nc"]])

    assert "\x1b" not in stream.getvalue()
    assert "a?[31mb?c" in stream.getvalue()
