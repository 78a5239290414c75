"""A console that reads a replica: what a form has done is shown, which that may not have yet."""

from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig
from cardledger.api.console.mode import ConsoleConfig, ConsoleMode
from cardledger.embedded.servers import DatabaseUrl
from cardledger.schema.roles import Role
from tests.api.support import Api, new_tenant, server
from tests.console.person import Person, shown
from tests.console.test_simulator import card_of, followed, sent
from tests.databases import as_role, fresh_database


@pytest.fixture(scope="module")
def lagging(
    postgres_url: DatabaseUrl, template_database: DatabaseUrl, app_database_url: DatabaseUrl
) -> Iterator[DatabaseUrl]:
    """The URL of a database that has none of the rows which are written after it was made."""
    with fresh_database(postgres_url, template=template_database.database) as url:
        yield as_role(app_database_url.with_database(url.database), Role.API)


@pytest.fixture(scope="module")
def tenant_api(
    root: str, config: ApiConfig, lagging: DatabaseUrl, postgres_url: DatabaseUrl
) -> Iterator[Api]:
    """A client whose platform is in the replica, too."""
    del root  # Has the worker.
    console = ConsoleConfig(mode=ConsoleMode.ACT, database_url=lagging)
    tenant = new_tenant(config.database_url)
    row = "SELECT to_jsonb(p) FROM platforms p WHERE id = %s"
    copied = "INSERT INTO platforms SELECT * FROM jsonb_populate_record(NULL::platforms, %s)"
    databases = [
        postgres_url.with_database(DatabaseUrl(url).database)
        for url in (config.database_url, lagging)
    ]
    with psycopg.connect(databases[0]) as primary, psycopg.connect(databases[1]) as replica:
        [(platform,)] = primary.execute(row, [tenant.platform_id]).fetchall()
        replica.execute(copied, [psycopg.types.json.Jsonb(platform)])
    with server(replace(config, console=console)) as url, Api(url, tenant) as client:
        yield client


@pytest.fixture
def visitor(tenant_api: Api) -> Iterator[Person]:
    with Person(str(tenant_api.http.base_url).partition(BASE_PATH)[0]) as person:
        person.log_in(tenant_api.tenant)
        yield person


def test_pages_read_the_replica(visitor: Person, tenant_api: Api) -> None:
    card = tenant_api.active_card()["id"]

    shown(visitor.get(f"/cards/{card}"), 404)


def test_what_a_form_has_made_is_shown(visitor: Person) -> None:
    card = card_of(visitor, amount="100.00 USD")
    page = shown(visitor.get(card))
    fields = sent(visitor, page, amount="12.50 USD", descriptor="BISTRO")

    page = followed(visitor, visitor.post(f"{card}/authorization", fields))

    assert "12.50" in page
    assert "BISTRO" in page


def test_half_a_minute_later_the_replica_is_read_again(visitor: Person) -> None:
    card = card_of(visitor, amount="100.00 USD")
    [acted] = [each for each in visitor.http.cookies.jar if each.name.endswith("_acted")]

    assert acted.expires is not None
    shown(visitor.get(card))
    visitor.http.cookies.jar.clear(acted.domain, acted.path, acted.name)
    shown(visitor.get(card), 404)
