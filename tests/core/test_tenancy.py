"""Conditions on own rows: each reads its table by itself, whatever the query around it reads."""

from uuid import UUID

from sqlalchemy import select

from cardledger.ledger.storage.tenancy import is_of_customer, own
from cardledger.schema import tables
from cardledger.schema.ids import Id

KEY, PLATFORM = (Id(UUID(int=number).bytes) for number in (1, 2))


def test_a_condition_is_not_correlated_with_the_same_table_around_it() -> None:
    customers = tables.customers
    of_key = own(customers, KEY, platform_id=PLATFORM)
    of_name = is_of_customer(customers.c.id, "c-1", platform_id=PLATFORM)

    statement = select(customers.c.id).where(customers.c.id == of_key, of_name)
    compiled = str(statement)

    assert compiled.count("FROM customers") == 3
