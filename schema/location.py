"""The PostgreSQL schema that holds the tables, as a connection URL names it.

The name travels in the URL, as the parameter `options` that libpq hands to the server. So every
connection of one URL sees the same tables, whether SQLAlchemy, psycopg or `psql` opens it, and
statements name tables alone.
Source: docs/decisions/0026-tables-in-a-schema-of-their-own.md
"""

import re
from typing import Final
from urllib.parse import quote, unquote

DEFAULT: Final = "cardledger"
"""Holds the tables unless CARDLEDGER_SCHEMA names another schema."""

# PostgreSQL's names have 63 bytes, and that of the views (`platform_views`) is four longer.
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,58}", re.ASCII)
_OPTIONS: Final = "options="
_SEARCH_PATH: Final = re.compile(r"-c\s*search_path=(\S+)")


def checked(name: str) -> str:
    """Return `name` if it can be the one schema of a search path.

    Raises: ValueError.
    """
    if not _NAME.fullmatch(name) or name.startswith("pg_"):
        raise ValueError(
            f"{name!r} cannot be the PostgreSQL schema of the tables (search_path): a schema is"
            " named by lower-case letters, digits and underscores, at most 59, not beginning with"
            " a digit or pg_"
        )
    return name


def options_in(url: str) -> str:
    """Return the `options` of `url`, decoded; empty when it has none."""
    for part in url.partition("?")[2].split("&"):
        if part.startswith(_OPTIONS):
            return unquote(part.removeprefix(_OPTIONS))
    return ""


def name_in(url: str) -> str:
    """Return the schema that `url` names; `DEFAULT` when it names none."""
    named = _SEARCH_PATH.search(options_in(url))
    return named[1] if named else DEFAULT


def with_name(url: str, name: str) -> str:
    """Return `url` for the schema `name`, whatever it named before; other options stay."""
    kept = _SEARCH_PATH.sub("", options_in(url)).split()
    options = " ".join([*kept, f"-c search_path={checked(name)}"])
    others = without_options(url)
    return f"{others}{'&' if '?' in others else '?'}{_OPTIONS}{quote(options, safe='')}"


def with_default(url: str) -> str:
    """Return `url` for the schema that it names, or for `DEFAULT`."""
    return with_name(url, name_in(url))


def without_options(url: str) -> str:
    """Return `url` without the parameter `options`, for people to read."""
    base, _, query = url.partition("?")
    others = [part for part in query.split("&") if part and not part.startswith(_OPTIONS)]
    return f"{base}?{'&'.join(others)}" if others else base
