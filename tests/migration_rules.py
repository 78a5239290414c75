"""What a revision must not do while the previous release runs: docs/deploying.md as a check.

It reads the statements that a revision would execute (`cardledger migrate --sql`), so raw SQL,
files and Alembic's operations are checked alike. It knows statements, not data: whether a new
constraint refuses what the previous release writes is for a reviewer to see.
"""

import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from alembic import command
from alembic.script import Script

from cardledger.schema import migrate

_TOKEN: Final = re.compile(
    r"(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<body>\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)"
    r"|(?P<literal>'(?:[^']|'')*')|(?P<end>;)|(?P<other>[^$';/-]+|.)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement without comments and literals; the body of a DO block is part of it."""

    text: str
    in_transaction: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is forbidden: a pattern with the name of the table as the group `table`, if it has one.

    A table that the revision creates itself has no rows and no users: nothing is forbidden there.
    The same holds for a trigger, the group `trigger`.
    """

    pattern: re.Pattern[str]
    problem: str


def _rule(pattern: str, problem: str) -> Rule:
    return Rule(pattern=re.compile(pattern, re.IGNORECASE | re.DOTALL), problem=problem)


_ALTERS: Final = r"\bALTER TABLE (?:IF EXISTS )?(?:ONLY )?\"?(?P<table>\w+)\"? .*?"
_CLAUSE: Final = r"(?:[^,()]|\((?:[^()]|\([^()]*\))*\))*"  # Up to the next comma.
_VOLATILE: Final = r"(?:gen_random_uuid|random|clock_timestamp|nextval|timeofday|uuid\w*)\s*\("

_FUNCTION: Final = r"\w+\([\w, \[\]]*\)"

# The previous release reads and writes the schema of this revision: forbidden on the way up, unless
# the revision says which releases it is compatible with.
_COMPATIBILITY: Final = (
    _rule(
        r"\bDROP (?:TABLE|VIEW|MATERIALIZED|FUNCTION|PROCEDURE|TYPE|SEQUENCE|SCHEMA|ROLE)\b",
        "removes what the previous release uses",
    ),
    _rule(
        r"\bDROP TRIGGER (?:IF EXISTS )?(?P<trigger>\w+)",
        "removes what the previous release uses",
    ),
    _rule(
        _ALTERS + r"\bDROP (?!CONSTRAINT\b|NOT NULL\b)",
        "removes a column or a default that the previous release uses",
    ),
    _rule(r"\bRENAME\b", "renames what the previous release uses"),
    _rule(
        _ALTERS + r"\bADD (?:COLUMN )?(?!CONSTRAINT\b|CHECK\b)"
        rf"(?!{_CLAUSE}\bDEFAULT\b){_CLAUSE}\bNOT NULL\b",
        "adds a column that the previous release does not fill: NOT NULL needs a DEFAULT",
    ),
    _rule(_ALTERS + r"\bSET NOT NULL\b", "requires a value that the previous release may not give"),
    # The right to use a trigger's function is needed to create a trigger, not when it fires; other
    # functions with a right of the public are new.
    _rule(
        r"\bREVOKE\b(?! EXECUTE ON (?:FUNCTION {_FUNCTION}(?:, {_FUNCTION})*"
        r"|ALL FUNCTIONS IN SCHEMA %I) FROM PUBLIC\b)".replace("{_FUNCTION}", _FUNCTION),
        "takes a right that the previous release uses",
    ),
    _rule(r"\bSET SCHEMA\b", "moves what the previous release uses"),
)

# These block all use of the table while they run: forbidden up and down.
_LOCKS: Final = (
    _rule(
        r"\bCREATE (?:UNIQUE )?INDEX (?!CONCURRENTLY\b).*?\bON (?:ONLY )?\"?(?P<table>\w+)",
        "blocks writes while it builds an index: use create_index_concurrently",
    ),
    _rule(
        r"\bDROP INDEX (?!CONCURRENTLY\b)",
        "locks the table of an index: use drop_index_concurrently",
    ),
    _rule(
        r"\bREINDEX\b(?!.*\bCONCURRENTLY\b)|\bCLUSTER\b|\bVACUUM\b|\bREFRESH MATERIALIZED\b",
        "blocks writes while it rewrites the table",
    ),
    _rule(
        _ALTERS + r"\bALTER (?:COLUMN )?\"?\w+\"? (?:SET DATA )?TYPE\b",
        "rewrites the table: add a column of the new type instead",
    ),
    _rule(
        _ALTERS + r"\bADD (?:COLUMN )?(?:\w+ (?:SMALL|BIG)?SERIAL\b|"
        rf"{_CLAUSE}\bGENERATED\b|{_CLAUSE}\bDEFAULT {_VOLATILE})",
        "rewrites the table: a value for each row is a change in pages",
    ),
    _rule(
        _ALTERS + r"\bADD (?:CONSTRAINT|CHECK|FOREIGN|UNIQUE|PRIMARY|EXCLUDE)\b"
        r"(?!.*\b(?:NOT VALID|USING INDEX)\b)",
        "blocks writes while it reads the whole table: NOT VALID here, VALIDATE in the next"
        " revision; or USING INDEX",
    ),
    _rule(r"\bTRUNCATE\b(?! ON\b)|\bLOCK TABLE\b|\bLOCK \w+ IN\b", "locks a table"),
)

_ROWS: Final = re.compile(
    r"^(?:WITH\b.*)?\b(?:UPDATE (?:ONLY )?|DELETE FROM (?:ONLY )?|INSERT INTO (?=.*\bSELECT\b))"
    r"\"?(?P<table>\w+)",
    re.IGNORECASE | re.DOTALL,
)
_ALTERED: Final = re.compile(
    r"\b(?:ALTER TABLE (?:IF EXISTS )?(?:ONLY )?|CREATE (?:OR REPLACE )?(?:CONSTRAINT )?TRIGGER .*?"
    r" ON )\"?(?P<table>\w+)",
    re.IGNORECASE | re.DOTALL,
)
_CREATED: Final = re.compile(
    r"\bCREATE (?:TABLE (?:IF NOT EXISTS )?|(?:OR REPLACE )?TRIGGER )\"?(\w+)", re.IGNORECASE
)
_BOOKKEEPING: Final = re.compile(
    r"^(?:BEGIN|COMMIT|(?:UPDATE|INSERT INTO|DELETE FROM)"
    r" (?:alembic_version|schema_compatibility))\b"
)


_Column = tuple[str, str]
"""A table and one of its columns."""

_ALTERATION: Final = re.compile(
    r"\bALTER TABLE (?:IF EXISTS )?(?:ONLY )?\"?(?P<table>\w+)\"? (?P<clauses>[^;]*)", re.IGNORECASE
)
_SET_NOT_NULL: Final = re.compile(
    r"\bALTER (?:COLUMN )?\"?(?P<column>\w+)\"? SET NOT NULL\b", re.IGNORECASE
)
_NOT_NULL_CHECK: Final = re.compile(
    r"\bADD CONSTRAINT \"?(?P<name>\w+)\"? CHECK \(+\"?(?P<column>\w+)\"? IS NOT NULL\)",
    re.IGNORECASE,
)
_VALIDATION: Final = re.compile(r"\bVALIDATE CONSTRAINT \"?(?P<name>\w+)\"?", re.IGNORECASE)

_SCAN: Final = "down: SET NOT NULL"
_RIGHT: Final = "up: takes a right"

EXEMPT: Final = {
    "0100": (_SCAN, "released before this rule; one row for each difference that was found"),
    "0133": (_SCAN, "released before this rule; the scan reads no file: files are out of line"),
    "0135": (_SCAN, "released before this rule; one row for each movement in SUSPENSE"),
    "0138": (_RIGHT, "no process reads invitations as the reader; people may the other columns"),
}
"""Revisions that break a rule, how the problem begins, and why they may.

To correct the scans on the way back would take two more transactions, and so revisions between
those that are released.
"""


def problems(
    upgrade: str,
    downgrade: str = "",
    *,
    is_contract: bool = False,
    checked: Collection[_Column] = (),
) -> list[str]:
    """Return what forbids to execute the statements of a revision while the previous release runs.

    `is_contract`: the revision says which releases can use the schema after it, so it may remove
    what only older ones use. `checked` are the columns that earlier revisions have proven to have
    no nulls, by a validated CHECK.
    """
    up, down = list(statements(upgrade)), list(statements(downgrade))
    created = {name for each in up for name in _CREATED.findall(each.text)}
    found = [f"up: {problem}" for problem in _on_locks(up, created)]
    found += [f"up: {problem}" for problem in _on_nulls(up, created, checked)]
    if not is_contract:
        found += [f"up: {problem}" for problem in _on_rules(up, _COMPATIBILITY, created)]
    # What the revision created, it may also remove: the next release has stopped by then.
    found += [f"down: {problem}" for problem in _on_locks(down, created)]
    return found + [f"down: {problem}" for problem in _on_nulls(down, created, checked)]


def checked_columns(upgrades: Iterable[str]) -> set[_Column]:
    """Return the columns for which `upgrades` have added and validated a CHECK (… IS NOT NULL)."""
    added: dict[tuple[str, str], str] = {}  # The column of a constraint.
    proven = set()
    for text in upgrades:
        for table, clauses in _alterations(statements(text)):
            for check in _NOT_NULL_CHECK.finditer(clauses):
                added[table, check["name"]] = check["column"]
            for validation in _VALIDATION.finditer(clauses):
                if column := added.get((table, validation["name"])):
                    proven.add((table, column))
    return proven


def _alterations(found: Iterable[Statement]) -> Iterator[tuple[str, str]]:
    """Yield the table and the clauses of every ALTER TABLE, also of those in a DO block."""
    for each in found:
        for alteration in _ALTERATION.finditer(each.text):
            yield alteration["table"], alteration["clauses"]


def _on_nulls(
    found: list[Statement], created: set[str], checked: Collection[_Column]
) -> Iterator[str]:
    for table, clauses in _alterations(found):
        for match in _SET_NOT_NULL.finditer(clauses):
            if table not in created and (table, match["column"]) not in checked:
                yield (
                    f"SET NOT NULL of {table}.{match['column']} reads the whole table under its"
                    " lock: add CHECK (… IS NOT NULL) NOT VALID in one revision and VALIDATE it in"
                    " the next"
                )


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of `text` one by one, in a form that patterns can read."""
    parts: list[str] = []
    in_transaction = False
    for token in _TOKEN.finditer(f"{text};"):
        if token["end"] is None:
            parts.append(_readable(token, " ".join("".join(parts).split())))
            continue
        statement = " ".join("".join(parts).split())
        parts = []
        in_transaction = statement == "BEGIN" or (in_transaction and statement != "COMMIT")
        if statement and not _BOOKKEEPING.match(statement):
            yield Statement(statement, in_transaction)


def _readable(token: re.Match[str], before: str) -> str:
    if token["comment"]:
        return " "
    if token["body"]:
        # A DO block is executed now, with what it puts together; a function is executed later.
        return f" {token['body']} " if before.upper().startswith("DO") else " body "
    return "''" if token["literal"] else token[0]


def _on_locks(found: list[Statement], created: set[str]) -> Iterator[str]:
    yield from _on_rules(found, _LOCKS, created)
    for each in found:
        rows = _ROWS.search(each.text)
        in_pages = not each.in_transaction and " LIMIT " in each.text.upper()
        if rows and rows["table"] not in created and not in_pages:
            yield f"changes any number of rows, use change_in_pages: {each.text}"
    inside = [each for each in found if each.in_transaction]
    if inside and len(inside) < len(found):
        yield f"a step outside of a transaction is a revision of its own, without {inside[0].text}"
    altered = {
        name
        for each in inside
        for name in (match["table"] for match in _ALTERED.finditer(each.text))
        if name not in created
    }
    if len(altered) > 1:
        yield f"holds locks on several tables, make several revisions: {', '.join(sorted(altered))}"
    validating = [each for each in inside if "VALIDATE CONSTRAINT" in each.text.upper()]
    if validating and len(inside) > len(validating):
        yield "reads a table while locks of other statements are held: VALIDATE is a revision alone"


def _on_rules(found: list[Statement], rules: tuple[Rule, ...], created: set[str]) -> Iterator[str]:
    for each in found:
        for rule in rules:
            match = rule.pattern.search(each.text)
            if match and created.isdisjoint(filter(None, match.groupdict().values())):
                yield f"{rule.problem}: {each.text}"


# --- the revisions of this release ----------------------------------------------------------------


def revisions() -> list[Script]:
    """Return all revisions of this release, oldest first."""
    return [*migrate.revisions().walk_revisions()][::-1]


def problems_of(revision: Script) -> list[str]:
    """Return what forbids to apply `revision` while the previous release runs."""
    oldest_head = getattr(revision.module, "oldest_head", None)
    earlier = [each for each in revisions() if each.revision < revision.revision]
    found = problems(
        _upgrade_of(revision),
        _downgrade_of(revision),
        is_contract=oldest_head is not None,
        checked=checked_columns(map(_upgrade_of, earlier)),
    )
    if revision.revision in EXEMPT:
        known_problem, _ = EXEMPT[revision.revision]
        found = [problem for problem in found if not problem.startswith(known_problem)]
    known = {each.revision for each in earlier}
    if oldest_head is not None and oldest_head not in known:
        found.append(f"oldest_head is {oldest_head!r}, which is no revision before this one")
    return found


def may_refuse_its_downgrade(revision: Script) -> bool:
    """Return whether the downgrade of `revision` looks at the data, and fails where they forbid it.

    A function that it puts back may raise later; `functions.change` fails for another body only.
    """
    return any(
        "RAISE EXCEPTION" in each.text and not each.text.startswith("DO $change$")
        for each in statements(_downgrade_of(revision))
    )


def _downgrade_of(revision: Script) -> str:
    return _printed(command.downgrade, f"{revision.revision}:{revision.down_revision or 'base'}")


@cache
def _upgrade_of(revision: Script) -> str:
    before = revision.down_revision or "base"
    return _printed(command.upgrade, f"{before}:{revision.revision}")


def _printed(run: Callable[..., None], span: str) -> str:
    config = migrate._config(None)
    config.output_buffer = io.StringIO()
    config.attributes["schema"] = None
    run(config, span, sql=True)
    return config.output_buffer.getvalue()
