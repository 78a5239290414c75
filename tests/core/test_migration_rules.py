"""The revisions of this release can be applied while the previous one runs."""

import re
from pathlib import Path

import pytest

from tests.migration_rules import (
    EXEMPT,
    checked_columns,
    may_refuse_its_downgrade,
    problems,
    problems_of,
    revisions,
)

LAST_WITH_A_STOP = "0012"
"""The newest revision of the first release: nothing ran before it."""


def test_every_revision_can_be_applied_while_the_previous_release_runs() -> None:
    found = {
        each.revision: problems_of(each) for each in revisions() if each.revision > LAST_WITH_A_STOP
    }

    assert not {revision: wrong for revision, wrong in found.items() if wrong}


def test_the_page_of_deployments_names_every_revision_that_may_refuse_its_downgrade() -> None:
    page = (Path(__file__).parents[2] / "docs" / "deploying.md").read_text(encoding="utf-8")
    table = page.partition("| revision | is not removed while, or once |")[2].partition("\n\n")[0]
    named = re.findall(r"^\| (\d{4}) \| .+ \|$", table, re.MULTILINE)

    refusing = [each.revision for each in revisions() if may_refuse_its_downgrade(each)]

    assert named == refusing[::-1]


@pytest.mark.parametrize(
    ("revision", "problem"),
    [
        ("0008", "CREATE INDEX webhook_deliveries_subject_id_idx"),
        ("0008", "UPDATE outbox"),
        ("0010", "UPDATE card_reveals"),
        ("0007", "removes a column"),
        ("0012", "CREATE INDEX rejections_platform_id_idx"),
    ],
)
def test_revisions_that_needed_a_stop_are_found(revision: str, problem: str) -> None:
    [script] = [each for each in revisions() if each.revision == revision]

    found = problems_of(script)

    assert any(problem in line for line in found), found


REMOVALS = [
    "DROP TABLE parked",
    "DROP VIEW journal",
    "DROP FUNCTION record_acceptance()",
    "DROP TRIGGER acceptance ON inbox",
    "ALTER TABLE cards DROP COLUMN brand",
    "ALTER TABLE cards DROP brand",
    "ALTER TABLE cards ALTER COLUMN brand DROP DEFAULT",
    "ALTER TABLE cards RENAME COLUMN brand TO network",
    "ALTER TABLE parked RENAME TO waiting",
    "ALTER TABLE cards ADD COLUMN network TEXT NOT NULL",
    "ALTER TABLE cards ADD COLUMN rate NUMERIC(10, 2) NOT NULL",
    "ALTER TABLE cards ADD COLUMN a TEXT DEFAULT 'x', ADD COLUMN b TEXT NOT NULL",
    "ALTER TABLE cards SET SCHEMA other",
    "REVOKE INSERT ON inbox FROM PUBLIC",
    "DO $$ BEGIN EXECUTE format('REVOKE INSERT ON inbox FROM %I', current_user); END $$",
]

LONG_LOCKS = [
    "CREATE INDEX i ON entries (recorded_at)",
    "CREATE UNIQUE INDEX i ON entries (recorded_at)",
    "DROP INDEX i",
    "REINDEX TABLE entries",
    "ALTER TABLE entries ALTER COLUMN line TYPE BIGINT",
    "ALTER TABLE entries ALTER line SET DATA TYPE BIGINT",
    "ALTER TABLE entries ADD COLUMN number BIGSERIAL",
    "ALTER TABLE entries ADD COLUMN key UUID DEFAULT gen_random_uuid()",
    "ALTER TABLE entries ADD COLUMN twice BIGINT GENERATED ALWAYS AS (amount * 2) STORED",
    "ALTER TABLE entries ADD CONSTRAINT positive CHECK (amount > 0)",
    "ALTER TABLE entries ADD UNIQUE (recorded_at)",
    "ALTER TABLE cards ALTER COLUMN brand SET NOT NULL",
    "ALTER TABLE cards DROP COLUMN network, ALTER brand SET NOT NULL",
    "DO $$ BEGIN ALTER TABLE cards DROP COLUMN network, ALTER brand SET NOT NULL; END $$",
    "ALTER TABLE cards ADD FOREIGN KEY (customer_id) REFERENCES customers (id)",
    "UPDATE cards SET brand = 'VISA'",
    "UPDATE cards SET brand = 'VISA' WHERE id IN (SELECT id FROM cards LIMIT 1000)",
    "DELETE FROM parked",
    "INSERT INTO parked SELECT * FROM inbox",
    "LOCK TABLE inbox",
    "TRUNCATE inbox",
    "ALTER TABLE cards ADD COLUMN a TEXT; ALTER TABLE inbox ADD COLUMN a TEXT",
    "ALTER TABLE cards ADD COLUMN a TEXT; ALTER TABLE cards VALIDATE CONSTRAINT c",
    "ALTER TABLE cards ADD COLUMN a TEXT; COMMIT; CREATE INDEX CONCURRENTLY i ON cards (a); BEGIN",
    "COMMIT; DELETE FROM parked; BEGIN",
]

ALLOWED = [
    "CREATE TABLE notes (id UUID NOT NULL, body TEXT); CREATE INDEX i ON notes (body)",
    "CREATE TABLE notes (id UUID); ALTER TABLE notes ALTER COLUMN id SET NOT NULL",
    "ALTER TABLE cards ADD COLUMN network TEXT",
    "ALTER TABLE cards ADD COLUMN views INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE cards ADD COLUMN views INTEGER DEFAULT 0 NOT NULL",
    "ALTER TABLE cards ADD COLUMN seen_at TIMESTAMPTZ DEFAULT now()",
    "ALTER TABLE cards ADD CONSTRAINT c CHECK (views >= 0) NOT VALID",
    "ALTER TABLE cards VALIDATE CONSTRAINT c",
    "ALTER TABLE cards ALTER COLUMN brand DROP NOT NULL",
    "COMMIT; CREATE INDEX CONCURRENTLY i ON entries (recorded_at); BEGIN",
    "COMMIT; DROP INDEX CONCURRENTLY IF EXISTS i; BEGIN",
    "COMMIT; UPDATE cards SET brand = 'VISA' WHERE id IN (SELECT id FROM cards LIMIT 9); BEGIN",
    "COMMENT ON TABLE cards IS 'DROP TABLE, RENAME; UPDATE cards'; -- DROP TABLE cards;",
    "CREATE FUNCTION f() RETURNS trigger AS $$ BEGIN UPDATE cards SET brand = ''; END $$",
    "DO $$ BEGIN EXECUTE format('GRANT SELECT ON notes TO %I', current_user); END $$",
    (
        "CREATE OR REPLACE TRIGGER t BEFORE UPDATE ON entries EXECUTE FUNCTION f();"
        " DROP TRIGGER IF EXISTS t ON entries"
    ),
    "INSERT INTO system_accounts (id) VALUES ('x')",
]


def in_transaction(text: str) -> str:
    return f"BEGIN; {text}; COMMIT;"


@pytest.mark.parametrize("text", REMOVALS)
def test_what_the_previous_release_uses_is_removed_by_a_contract_only(text: str) -> None:
    assert problems(in_transaction(text))
    assert not problems(in_transaction(text), is_contract=True)


@pytest.mark.parametrize("text", LONG_LOCKS)
def test_a_revision_that_locks_a_table_for_long_is_refused(text: str) -> None:
    assert problems(in_transaction(text))
    assert problems(in_transaction(text), is_contract=True)
    assert problems("", in_transaction(text))


@pytest.mark.parametrize("text", ALLOWED)
def test_a_revision_that_stops_nobody_is_accepted(text: str) -> None:
    assert problems(in_transaction(text)) == []


_ADD = "ALTER TABLE cards ADD CONSTRAINT named CHECK (brand IS NOT NULL) NOT VALID"
_VALIDATE = "ALTER TABLE cards VALIDATE CONSTRAINT named"


@pytest.mark.parametrize(
    ("earlier", "is_proven"),
    [
        ([_ADD, _VALIDATE], True),
        ([_ADD], False),
        ([_VALIDATE], False),
        ([_ADD.replace("cards", "customers"), _VALIDATE], False),
        ([_ADD.replace("brand", "state"), _VALIDATE], False),
    ],
)
def test_not_null_follows_a_validated_check_of_earlier_revisions(
    earlier: list[str], *, is_proven: bool
) -> None:
    text = in_transaction("ALTER TABLE cards ALTER COLUMN brand SET NOT NULL")
    checked = checked_columns(map(in_transaction, earlier))

    assert (problems(text, is_contract=True, checked=checked) == []) == is_proven
    assert (problems("", text, checked=checked) == []) == is_proven
    assert problems(text, checked=checked), "only a contract may require a value"


def test_every_exemption_is_needed() -> None:
    for revision in revisions():
        if revision.revision in EXEMPT:
            known_problem, _ = EXEMPT[revision.revision]
            with pytest.MonkeyPatch.context() as patch:
                patch.delitem(EXEMPT, revision.revision)
                assert any(line.startswith(known_problem) for line in problems_of(revision))


def test_the_way_back_may_remove_what_the_revision_has_added() -> None:
    up = in_transaction("ALTER TABLE cards ADD COLUMN network TEXT")
    down = in_transaction("ALTER TABLE cards DROP COLUMN network")

    assert problems(up, down) == []
