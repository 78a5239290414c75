"""A schema is used by a window of releases."""

import pytest

from cardledger.schema import migrate
from cardledger.schema.compatibility import head, is_usable, problem


@pytest.mark.parametrize(
    ("revision", "oldest_head", "usable"),
    [
        ("0012", "0012", True),
        ("0012", None, True),
        ("0014", "0012", True),  # Newer and compatible.
        ("0014", "0011", True),
        ("0014", "0013", False),  # Newer, for newer releases only.
        ("0014", None, False),
        ("0011", "0009", False),  # Older: the release needs its migration.
        (None, None, False),
    ],
)
def test_a_release_whose_newest_revision_is_0012(
    revision: str | None,
    oldest_head: str | None,
    usable: bool,  # noqa: FBT001 - a column of the table above
) -> None:
    assert is_usable(revision, head="0012", oldest_head=oldest_head) is usable


def test_a_schema_that_cannot_be_used_is_said_with_what_to_do() -> None:
    older = problem("0011", head="0012", oldest_head=None)
    newer = problem("0014", head="0012", oldest_head="0013")

    assert (
        older == "the database has schema 0011, this release needs 0012; run `cardledger migrate`"
    )
    assert newer is not None
    assert newer.endswith("deploy the release that belongs to it")
    assert problem("0014", head="0012", oldest_head="0012") is None


def test_the_newest_revision_is_the_one_that_alembic_knows() -> None:
    assert head() == migrate.head()
