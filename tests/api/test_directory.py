"""Banks, mobile money and providers: who can be paid outside the service."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cardledger.api.app import ApiConfig
from cardledger.schema.wire.customers.account_variants import VARIANTS
from tests.api.support import Api, ok, refused, server

PATHS = ("/discoveries", "/uma-providers", "/vasps")


@pytest.fixture(scope="module")
def production(api_config: ApiConfig, api: Api) -> Iterator[Api]:
    """The same platform at a server that is no sandbox."""
    with server(replace(api_config, sandbox=False)) as url, Api(url, api.tenant) as client:
        yield client


def test_banks_are_listed_by_country_and_currency(api: Api) -> None:
    everything = ok(api.get("/discoveries"))["data"]
    german = ok(api.get("/discoveries", country="DE", currency="EUR"))["data"]

    assert {"country": "DE", "currency": "EUR"}.items() <= german[0].items()
    assert [bank["displayName"] for bank in german] == ["Alpenbank", "Rheinbank"]
    assert german[0]["bankName"] == "ALPENBANK"
    assert german == [bank for bank in everything if bank["country"] == "DE"]
    assert ok(api.get("/discoveries", country="DE", currency="USD"))["data"] == []
    assert ok(api.get("/discoveries", country="ZZ"))["data"] == []


def test_there_is_a_bank_for_each_currency_of_a_bank_account(api: Api) -> None:
    known = {bank["currency"] for bank in ok(api.get("/discoveries"))["data"]}

    for variant in VARIANTS.values():
        if variant.is_fiat and variant.account_type != "SWIFT_ACCOUNT":
            assert known & set(variant.currencies or ()), variant.account_type


def test_a_filter_that_is_no_country_or_currency_is_refused(api: Api) -> None:
    refused(api.get("/discoveries", country="Germany"), 400, "INVALID_INPUT")
    refused(api.get("/discoveries", currency="eur"), 400, "INVALID_INPUT")
    refused(api.get("/uma-providers", countryCode="de"), 400, "INVALID_INPUT")
    refused(api.get("/uma-providers", hasBlockedProviders="yes"), 400, "INVALID_INPUT")


def test_providers_of_uma_addresses_are_filtered_and_sorted_by_name(api: Api) -> None:
    everything = ok(api.get("/uma-providers"))["data"]
    names = [provider["name"] for provider in everything]

    def found(**query: str) -> list[str]:
        listed = ok(api.get("/uma-providers", sortOrder="asc", **query))["data"]
        return [provider["domain"] for provider in listed]

    assert names == sorted(names, reverse=True)
    assert "sandbox.uma.money" in found(countryCode="DE", currencyCode="EUR")
    assert found(countryCode="KE") == ["remittances.example"]
    assert "blocked.example" in found(hasBlockedProviders="true")
    assert "blocked.example" not in found(hasBlockedProviders="false")
    [blocked] = [one for one in everything if one["domain"] == "blocked.example"]
    assert blocked["allowListStatus"] is False
    assert set(blocked) == {
        "name",
        "domain",
        "logoUrl",
        "lei",
        "supportedRegions",
        "supportedCurrencies",
        "allowListStatus",
    }


@pytest.mark.parametrize(("path", "name"), [("/uma-providers", "name"), ("/vasps", "vaspName")])
def test_pages_have_every_provider_once(api: Api, path: str, name: str) -> None:
    whole = ok(api.get(path))
    page = ok(api.get(path, limit=2))
    pages = [page]
    while page["hasMore"]:
        page = ok(api.get(path, limit=2, cursor=page["nextCursor"]))
        pages.append(page)

    assert [item[name] for page in pages for item in page["data"]] == [
        item[name] for item in whole["data"]
    ]
    assert len(pages) > 1
    assert {page["totalCount"] for page in pages} == {len(whole["data"])}
    assert "nextCursor" not in pages[-1]
    refused(api.get("/cards", cursor=pages[0]["nextCursor"]), 400, "INVALID_INPUT")


def test_wallet_providers_have_a_name_and_perhaps_an_address(api: Api) -> None:
    listed = ok(api.get("/vasps"))["data"]

    assert all(set(vasp) <= {"vaspName", "url"} for vasp in listed)
    assert any("url" not in vasp for vasp in listed)


@pytest.mark.parametrize("path", PATHS)
def test_without_a_directory_nothing_is_made_up(production: Api, path: str) -> None:
    error = refused(production.get(path), 501, "NOT_IMPLEMENTED")

    assert "directory" in error["message"]
