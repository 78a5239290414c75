"""What `cardledger doctor` says of the place where the files of documents are."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import psycopg

from cardledger.install.findings import FAIL, OK, WARN, Finding
from cardledger.ledger.customers.documents.directory import (
    MARKER,
    DirectoryError,
    FileDirectory,
    FilePlace,
    ForeignDirectoryError,
)
from cardledger.ledger.customers.documents.store import owner
from cardledger.schema.ids import Id

_NAME: Final = "documents"
_VARIABLE: Final = "CARDLEDGER_DOCUMENTS_DIR"
_SAMPLE: Final = 20
_FREE_SPACE_BYTES: Final = 1024**3
_OF_OTHERS: Final = 0o077

_NEWEST: Final = """
    SELECT platform_id::text, document_id::text, file_id::text FROM document_contents
    WHERE file_id IS NOT NULL ORDER BY document_id DESC LIMIT %s
"""


def examine(connection: psycopg.Connection[Any], path: Path | None) -> Finding:
    """Return whether the directory `path`, if files are there, can be used and is the right one.

    It has the files of the newest documents: a directory without them is not the one of the
    processes of the API that store files.
    """
    newest = [FilePlace(*map(Id.parse, row)) for row in connection.execute(_NEWEST, [_SAMPLE])]
    if path is None:
        return _in_postgresql(newest)
    of = owner(connection)
    directory = FileDirectory(path, of)
    try:
        directory.check()
        lost = [place for place in newest if not directory.has(place)]
    except ForeignDirectoryError as error:
        fix = f"mount its volume; or, if {path} is for this database: echo {of} > {path}/{MARKER}"
        return Finding(name=_NAME, state=FAIL, detail=str(error), fix=fix)
    except DirectoryError as error:
        fix = f"create {path} for the user of the API, or mount it"
        return Finding(name=_NAME, state=FAIL, detail=str(error), fix=fix)
    if lost:
        detail = (
            f"{path} has not {len(lost)} of the newest {len(newest)} files,"
            f" such as that of Document:{lost[0].document_id}"
        )
        fix = f"give every process of the API the same {_VARIABLE}, or restore the files"
        return Finding(name=_NAME, state=FAIL, detail=detail, fix=fix)
    return _usable(path)


def _in_postgresql(newest: Sequence[FilePlace]) -> Finding:
    if newest:
        detail = f"{_VARIABLE} is not set, and there are files in a directory"
        fix = f"export {_VARIABLE}=<the directory of the processes of the API>"
        return Finding(name=_NAME, state=FAIL, detail=detail, fix=fix)
    return Finding(name=_NAME, state=OK, detail="their files are in PostgreSQL")


def _usable(path: Path) -> Finding:
    free = shutil.disk_usage(path).free
    detail = f"{path}, {free / _FREE_SPACE_BYTES:,.0f} GiB free"
    if path.stat().st_mode & _OF_OTHERS:
        detail = f"{path} can be entered by other users of the machine"
        return Finding(name=_NAME, state=WARN, detail=detail, fix=f"chmod 700 {path}")
    if free < _FREE_SPACE_BYTES:
        return Finding(name=_NAME, state=WARN, detail=detail, fix=f"free disk space on {path}")
    return Finding(name=_NAME, state=OK, detail=detail)
