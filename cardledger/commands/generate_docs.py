"""The pages of the docs that are made of tables in the code (`make docs`)."""

import sys
from collections.abc import Iterator
from pathlib import Path

from cardledger.api.app import ApiConfig, create_app
from cardledger.api.openapi import docs_page, not_implemented
from cardledger.schema.wire.errors import ERROR_SPECS, Code

_ERRORS = """\
# Errors

Made by `make docs` from the table in `schema/wire/errors.py`; a test holds it in step.

Every error has one body, whatever went wrong and wherever: `status`, `code`, `message` and, where
there is more to say, `details`. A program decides by `code`, a person reads `message`, which says
what to change. `details.errors[]` of a 400 names every field at fault with what it has to meet.
Which codes an operation has is in [the document](openapi.json) and on the server's page `/docs`.

Never sent: HTML, 422, a stack trace. Also what is not HTTP at all gets this body, and status 400.

| header | comes with | says |
|---|---|---|
| `X-Request-Id` | every answer | the id under which the request is in the logs |
| `WWW-Authenticate` | 401 | which scheme the path wants |
| `Allow` | 405 | which methods the path has |
| `x-should-retry: false` | 409, 501, some 503 | the same request would get the same answer |
| `Retry-After` | 429, 503 | seconds to wait |
| `retry-after-ms` | 429 | the same in milliseconds, which is more exact |

## What can be met

Three statuses come with `INVALID_INPUT`, because the interface has no codes of their own: 413, the
body is more than 1 MiB; 408, the body did not come to its end in time; 431, the head is too large.
"""

_NOT_MET = """\
## What cannot be met

Codes of the interface whose areas are [not built](not-built.md).

| status | code | would mean |
|---|---|---|
"""

_NOT_BUILT = """\
# What is not built

Made by `make docs` from the table in `api/openapi/not_implemented.py`; a test holds table and
routes against the public list of operations, so that every one of them is either here or works.

The interface names these areas and does not show them. Their paths ask for credentials as all
others do (401) and then answer 501 `NOT_IMPLEMENTED`, whatever the query and the body. None
pretends to have done anything.

| area | operation | why |
|---|---|---|
"""


def openapi_page() -> str:
    """Return the document of a sandbox, as text; nothing is connected to."""
    return docs_page.rendered(create_app(ApiConfig(database_url="", redis_url="", secret_key="")))


def errors_page() -> str:
    """Return `docs/errors.md`."""
    return _ERRORS + "".join(_built()) + "\n" + _NOT_MET + "".join(_others())


def not_built_page() -> str:
    """Return `docs/not-built.md`."""
    rows = [
        f"| {area.tag} | `{method} {path}` | {area.state} |\n"
        for area in not_implemented.TABLE
        for method, path in area
    ]
    return _NOT_BUILT + "".join(rows)


def pages() -> dict[str, str]:
    """Return every page by the name of its file."""
    return {
        "openapi.json": openapi_page(),
        "errors.md": errors_page(),
        "not-built.md": not_built_page(),
    }


def _built() -> Iterator[str]:
    last = 0
    for code, its in ERROR_SPECS.items():
        if not its.is_built:
            continue
        if its.status != last:
            last = its.status
            yield f"\n### {last}\n\n| code | when | how to see it |\n|---|---|---|\n"
        yield f"| `{code}` | {its.when} | {its.how} |\n"


def _others() -> Iterator[str]:
    for code in Code:
        its = ERROR_SPECS[code]
        if not its.is_built:
            yield f"| {its.status} | `{code}` | {its.when} |\n"


def main() -> None:
    """Write every page into the folder that is named."""
    folder = Path(sys.argv[1])
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
