"""Secrets under an idempotency key: in the first response only (decision 46)."""

import re
from collections.abc import Iterator
from typing import Final
from uuid import uuid4

from fastapi.routing import APIRoute

from cardledger.api import BASE_PATH, app
from cardledger.api.http.operations import Guarded
from cardledger.api.ingestion.bodies import JSON
from tests.api import contract
from tests.api.documents import document, resolved
from tests.api.support import Api, made

RETURNED_AGAIN: Final = {
    "POST /cards/{}/reveal panEmbedUrl": "opens in one browser, for one minute",
    "POST /invitations url": "has the code, by which the platform reads and cancels the invitation",
    "POST /invitations/{}/claim url": "the caller has sent the code",
    "POST /invitations/{}/cancel url": "the caller has sent the code, which is void now",
}
"""Fields that open a page and are not secrets of their response, with the reason."""


def pages() -> Iterator[str]:
    """Yield each operation other than GET with each field of its response that opens a page."""
    for path, item in document()["paths"].items():
        for method in contract.METHODS & item.keys() - {"get"}:
            for status, response in item[method]["responses"].items():
                declared = resolved(response)
                if status.startswith("2") and JSON in declared.get("content", {}):
                    example = contract.documented_example(declared)
                    for name in contract.pages_in(example):
                        yield f"{method.upper()} {without_names(path)} {name}"


def without_names(path: str) -> str:
    return re.sub(r"{\w+}", "{}", path.removeprefix(BASE_PATH))


def declared_secrets() -> set[str]:
    return {
        f"{method} {without_names(route.path)} {name}"
        for route in app._routes(is_sandbox=True)
        if isinstance(route, Guarded)
        for method in route.methods or ()
        for name in route.access.secrets
    }


def test_a_field_that_opens_a_page_is_a_secret_or_returned_again_for_a_reason() -> None:
    found = set(pages())

    assert "POST /customers/{}/kyc-link kycUrl" in found
    assert found - declared_secrets() == RETURNED_AGAIN.keys()


def test_every_page_that_needs_no_credentials_is_opened_by_a_field_with_an_example() -> None:
    """So a new page is missed by neither test."""
    parts = {
        route.path.partition("{")[0]
        for route in app._routes(is_sandbox=True)
        if isinstance(route, APIRoute) and route.path.startswith("/embed/")
    }
    text = str(document()["components"]["schemas"])

    assert parts
    assert [part for part in parts if part not in text] == []


def test_a_repetition_does_not_return_the_url_of_a_verification_page(api: Api) -> None:
    customer = api.customer(fullName="Ada 003")
    path, key = f"/customers/{customer['id']}/kyc-link", {"Idempotency-Key": str(uuid4())}

    first = made(api.http.post(path, headers=key))
    again = made(api.http.post(path, headers=key))

    assert first.pop("kycUrl")
    assert again == first
