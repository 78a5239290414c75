"""What earlier releases need of a database, which the end of a deployment takes from them.

Source: docs/decisions/0038-deploy-without-a-stop.md
"""

from typing import Final

from sqlalchemy import Connection, text

from cardledger.schema import compatibility, platform_views, roles
from cardledger.schema.roles import Role


class UndecidedError(Exception):
    """What an earlier release accepted or requested without a MAC waits; nothing was changed."""


def refuse(connection: Connection, url: str) -> None:
    """Let no earlier release use the database at `url`, and take the rights that only these need.

    In a copy of another database, whose roles have its name, there are no such roles.
    """
    if _role_exists(connection, roles.name_in(url, Role.API)):
        _limit_api(connection, f'"{roles.name_in(url, Role.API)}"')
    if _role_exists(connection, submit := roles.name_in(url, Role.SUBMIT)):
        connection.execute(text(f'REVOKE {roles.NOT_OF_SUBMIT} FROM "{submit}"'))
    connection.execute(
        text("UPDATE schema_compatibility SET oldest_head = greatest(oldest_head, :finished)"),
        {"finished": compatibility.OLDEST_HEAD_FINISHED},
    )


def require_macs(connection: Connection) -> None:
    """Refuse messages, quotes and payments without a MAC from now on.

    Raises: UndecidedError while messages, payments or collections without one wait.
    """
    if not connection.execute(text(_REQUIRE_MACS)).rowcount:
        raise UndecidedError(
            "messages that an earlier release has accepted wait to be decided, or collections"
            " that it has requested wait for their bank; finish when the workers have decided"
            " them, and the collections have ended or are cancelled"
        )


# The text of an id: what a message names may be none. The inbox is small.
_UNSIGNED_PAYMENTS: Final = """
    SELECT FROM inbox i JOIN transfers t
        ON t.customer_id = i.customer_id AND t.id::text = i.body ->> 'transferId'
    WHERE t.mac IS NULL AND t.sequence = 0 AND num_nonnulls(t.due_at, t.settled_at) = 0
"""

# What a bank collects moves nothing until it has arrived, and the engine writes nothing of it.
_UNSIGNED_COLLECTIONS: Final = """
    SELECT FROM transfers WHERE mac IS NULL AND kind = 'IN' AND status = 'PENDING'
        AND requested_at IS NOT NULL AND sequence = 0 AND due_at IS NULL
"""

_REQUIRE_MACS: Final = f"""
    UPDATE inbox_macs SET is_required = true
    WHERE NOT EXISTS (SELECT FROM inbox WHERE mac IS NULL)
        AND NOT EXISTS ({_UNSIGNED_PAYMENTS}) AND NOT EXISTS ({_UNSIGNED_COLLECTIONS})
"""

_ROLE_EXISTS: Final = "SELECT FROM pg_roles WHERE rolname = :name"


def _role_exists(connection: Connection, name: str) -> bool:
    return connection.execute(text(_ROLE_EXISTS), {"name": name}).first() is not None


def _limit_api(connection: Connection, role: str) -> None:
    """Leave the API's role those rights on tables that it needs beside the views."""
    names = ", ".join([*platform_views.VIEWS, *roles.UNREAD_BY_API])
    connection.execute(text(f"REVOKE ALL ON {names} FROM {role}"))
    for table, rights in roles.API_ON_TABLES.items():
        for right in rights:
            connection.execute(text(f"GRANT {right} ON {table} TO {role}"))
