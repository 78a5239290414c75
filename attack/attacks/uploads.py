"""Files and large bodies: costly forms, files at the cap, many events at once, and no events."""

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from uuid import uuid4

from attack import wire
from attack.arena import Arena, Attack, cycle
from attack.judge import Measure, Strike
from cardledger.api.uploads.limits import CUSTOMERS_FILE, DOCUMENT_FILE
from cardledger.workers.client.jsonl import MAX_LINE

_BOUNDARY: Final = "b"
_FALSE_DELIMITER: Final = b"\r\n--bx"
"""Begins as the delimiter of a part does, and is none."""

_FORM: Final = {"Content-Type": f"multipart/form-data; boundary={_BOUNDARY}"}
_LINES: Final = {"Content-Type": "application/x-ndjson"}
_MEGABYTE: Final = 1 << 20
_EVENTS_BODY: Final = 8 * _MEGABYTE
_BLANK_LINE: Final = b" " * 60_000 + b"\n"
_EVENTS: Final = 10_000
_CONNECTIONS: Final = 16
_KEPT_PERCENT: Final = 5
_JUDGED: Final = (400, 409, 413)

# The smallest PDF that is accepted, in two parts: comments may stand between them.
_PDF_HEAD: Final = (
    b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n"
    b"2 0 obj\n<< /Type /Pages /Kids [] /Count 0 >>\nendobj\n"
)
_PDF_TAIL: Final = (
    b"xref\n0 3\n0000000000 65535 f \n0000000009 00000 n \n0000000058 00000 n \n"
    b"trailer\n<< /Size 3 /Root 1 0 R >>\nstartxref\n107\n%%EOF\n"
)


def _form(fields: Mapping[str, str], name: str, content: bytes) -> bytes:
    """Return the body of a form with a file."""
    parts = [
        f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    ]
    head = f'Content-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    parts += [f"--{_BOUNDARY}\r\n{head}".encode(), content, f"\r\n--{_BOUNDARY}--\r\n".encode()]
    return b"".join(parts)


def _passport(arena: Arena, number: int, content: bytes) -> bytes:
    customers = arena.attacker.customers
    stated = {
        "documentType": "PASSPORT",
        "country": "US",
        "documentHolder": customers[number % len(customers)],
    }
    return arena.request("POST", "/documents", _form(stated, "a.pdf", content), headers=_FORM)


async def _false_delimiters(arena: Arena) -> Strike:
    content = _FALSE_DELIMITER * (DOCUMENT_FILE // len(_FALSE_DELIMITER) - 1)
    customers = _FALSE_DELIMITER * (CUSTOMERS_FILE // len(_FALSE_DELIMITER) - 1)
    bodies = itertools.cycle(
        [
            _passport(arena, 0, content),
            arena.request(
                "POST", "/customers/bulk/csv", _form({}, "a.csv", customers), headers=_FORM
            ),
        ]
    )
    arena.begin()
    flood = await arena.flood(lambda: next(bodies), 4)
    return flood.strike(*_JUDGED, 408, 429, 503, processed=_JUDGED)


def _customers_file() -> bytes:
    head = b"platformCustomerId,umaAddress,customerType,fullName\n"
    row = b"%s,,INDIVIDUAL,Ada Lovelace\n"
    return head + b"".join(row % uuid4().hex.encode() for _ in range(100_000))


async def _uploads(arena: Arena) -> Strike:
    filler = b"%" * (DOCUMENT_FILE - len(_PDF_HEAD) - len(_PDF_TAIL))
    documents = [
        _passport(arena, number, _PDF_HEAD + filler + _PDF_TAIL)
        for number in range(len(arena.attacker.customers))
    ]
    table = arena.request(
        "POST", "/customers/bulk/csv", _form({}, "a.csv", _customers_file()), headers=_FORM
    )
    body = itertools.cycle([table, *documents])
    arena.begin()
    flood = await arena.flood(lambda: next(body), _CONNECTIONS)
    return flood.strike(201, 202, *_JUDGED, 408, 429, 503, processed=(201, 202))


async def _event_files(arena: Arena) -> Strike:
    """Send as many events as a body may have, of cards that do not exist and that do."""
    address = replace(arena.address, base="")
    card = cycle([*arena.attacker.cards, *(f"Card:{uuid4()}" for _ in range(16))])
    numbers = itertools.count()

    def lines() -> bytes:
        number = next(numbers)
        events = [
            {
                "type": "CLEARING",
                "source": "attack",
                "reference": f"{number}-{place}",
                "issuerTransactionToken": f"{number}-{place}",
                "cardId": card(),
                "amount": 1,
                "currency": "USD",
            }
            for place in range(_EVENTS)
        ]
        body = "\n".join(map(json.dumps, events)).encode()
        # Blank lines, which are passed over: a longer one would be an event of its own.
        return body + b"\n" + _BLANK_LINE * ((_EVENTS_BODY - len(body) - 1) // len(_BLANK_LINE))

    bodies = [lines() for _ in range(8)]
    broken = b"{\n" * _EVENTS
    content = itertools.cycle([*bodies, broken])

    def request() -> bytes:
        return wire.request(
            "POST",
            address,
            "/network-events?wait=false",
            authorization=arena.attacker.authorization,
            body=next(content),
            headers=_LINES,
        )

    arena.begin()
    flood = await arena.flood(request, _CONNECTIONS)
    return flood.strike(200, 202, *_JUDGED, 408, 429, 503, processed=(202,))


_KEPT: Final = "SELECT count(*), coalesce(sum(octet_length(body)), 0) FROM rejections"


async def _invalid_files(arena: Arena) -> Strike:
    """Send files of objects that are no events, each as large as a line may be."""
    address = replace(arena.address, base="")
    line = json.dumps({"unknown": ""}).encode()
    line = line.replace(b'""', b'"%b"' % (b"x" * (MAX_LINE - len(line))))
    content = b"\n".join([line] * (_EVENTS_BODY // (len(line) + 1)))
    whole = wire.request(
        "POST",
        address,
        "/network-events?wait=false",
        authorization=arena.attacker.authorization,
        body=content,
        headers=_LINES,
    )
    arena.begin()
    flood = await arena.flood(lambda: whole, _CONNECTIONS)
    with arena.stage.connect() as connection:
        found = connection.execute(
            f"{_KEPT} WHERE platform_id = %s".encode(), [arena.attacker.platform_id]
        ).fetchone()
    assert found is not None
    count, kept = int(found[0]), int(found[1])
    share = Measure(
        name="bytes kept of those sent",
        value=round(100 * kept / (len(line) * count or 1), 1),
        limit=_KEPT_PERCENT,
        unit="%",
    )
    return flood.strike(
        202, *_JUDGED, 408, 429, 503, processed=(202,), measures=[share], proof=f"; {count:,} kept"
    )


ATTACKS: Final = (
    Attack(
        item="C13",
        name="false delimiters",
        aim="forms of 10 and 32 MB full of false delimiters block the event loop",
        run=_false_delimiters,
    ),
    Attack(
        item="C13",
        name="uploads at the cap",
        aim=f"files of 10 MB and of 100,000 customers on {_CONNECTIONS} connections fill disk,"
        " memory and threads",
        run=_uploads,
    ),
    Attack(
        item="C14",
        name="event files",
        aim=f"bodies of 8 MB with {_EVENTS:,} events delay another platform's decisions",
        run=_event_files,
    ),
    Attack(
        item="A6",
        name="invalid files",
        aim="bodies of 8 MB with large objects that are no events fill the disk with rejections",
        run=_invalid_files,
    ),
)
