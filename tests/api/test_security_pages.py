"""SECURITY.md and docs/security.md speak of everything that a caller can reach."""

import re

from fastapi.routing import APIRoute

from cardledger.api import app, console
from cardledger.api.ingestion.bodies import JSON
from cardledger.ledger.platforms.scopes import Permission
from tests.api.contract import METHODS
from tests.api.documents import document
from tests.core.test_documentation import ROOT, rows_of, threat_rows


def ways_in() -> set[str]:
    """Return the permissions, pages and uploads that the threat model has to speak of."""
    paths = document()["paths"]
    files = {
        f"{method.upper()} {path}"
        for path, item in paths.items()
        for method, operation in item.items()
        if method in METHODS and set(operation.get("requestBody", {}).get("content", {})) - {JSON}
    }
    pages = {
        route.path.partition("/{")[0]
        for route in app._routes(is_sandbox=True)
        if isinstance(route, APIRoute) and route.path.startswith("/embed/")
    }
    return {permission.value for permission in Permission} | files | pages | {console.ROOT}


def test_the_threat_model_speaks_of_every_permission_page_and_upload() -> None:
    text = "\n".join(threat_rows())

    assert len(ways_in()) > len(Permission)
    assert [name for name in sorted(ways_in()) if f"`{name}`" not in text] == []


def test_each_chapter_of_the_asvs_with_a_subject_here_has_a_row() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    without = re.search(r"Chapters that have no subject here: (.+?), and\s+within", text, re.DOTALL)
    sections = " ".join(row[0] for row in rows_of("ASVS 5.0, level 2"))

    assert without is not None
    chapters = set(map(int, re.findall(r"\bV(\d+)", without[1])))
    rows = {int(number) for number in re.findall(r"\b(\d+)\.\d", sections)}
    assert chapters == {10, 17}
    assert chapters | rows == set(range(1, 18))


def operations_that_change() -> set[str]:
    """Return each implemented operation other than GET, as `POST /tokens/…/rotate-secret`."""
    return {
        f"{method.upper()} {re.sub(r'{.+?}', '…', path)}"
        for path, item in document()["paths"].items()
        for method, operation in item.items()
        if method in METHODS - {"get"} and any(status < "3" for status in operation["responses"])
    }


def test_after_a_theft_every_operation_that_changes_something_is_named() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("## After a theft\n")[2]
    named = set(re.findall(r"`((?:POST|PATCH|PUT|DELETE) /[^`]+)`", text)) - {"POST /console/…"}
    of_the_sandbox = {name for name in operations_that_change() if " /sandbox/" in name}

    assert "`/sandbox/…`" in text
    assert operations_that_change() - of_the_sandbox == named
