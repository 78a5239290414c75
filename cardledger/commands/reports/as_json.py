"""JSON: one document, a row a line; amounts are integers of minor units, decimals are text."""

import json
from typing import IO

from cardledger.commands.reports.document import Document


def write(out: IO[bytes], document: Document) -> None:
    """Write `document` while its rows are read."""
    head = json.dumps(document.head.wire(), ensure_ascii=False)
    out.write(f'{head[:-1]}, "rows": ['.encode())
    names = [column.name for column in document.columns]
    encode = json.JSONEncoder(ensure_ascii=False).encode
    separator = "\n"
    for rows in document.batches:
        lines = (encode(dict(zip(names, row, strict=True))) for row in rows)
        out.write((separator + ",\n".join(lines)).encode())
        separator = ",\n"
    out.write(b"\n]}\n")
