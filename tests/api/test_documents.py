"""Documents: uploaded, listed, replaced, deleted; and what verifications make of them."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest

from cardledger.api import BASE_PATH
from cardledger.api.app import ApiConfig, create_app
from cardledger.api.uploads.limits import DOCUMENT_FILE
from cardledger.api.uploads.multipart import PIECE, FormReader
from cardledger.ledger.customers.documents import registry, uploaded
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.storage.secrets.sealed_columns import DOCUMENT_KEY
from cardledger.schema.ids import Id
from tests.api.support import (
    SECRET_KEY,
    TIMEOUT_S,
    Api,
    made,
    new_tenant,
    ok,
    refused,
    server,
    serving,
    url_of,
)
from tests.api.test_beneficial_owners import add, business
from tests.api.test_verifications import ADDRESS, COMPLETE, kinds, submit
from tests.connection_guard import GuardedApp
from tests.databases import as_psql
from tests.files import PASSPORT, PDF, form, jpeg, pdf_of, png
from tests.waiting import eventually

PROOFS = ("STATE_COMPANY_REGISTRY", "UTILITY_BILL")


@pytest.fixture
def own(root: str, api_config: ApiConfig) -> Iterator[Api]:
    """The interface as seen by a platform of this test alone."""
    with Api(root, new_tenant(api_config.database_url)) as client:
        yield client


def post(api: Api, **arguments: Any) -> httpx2.Response:  # noqa: ANN401 - of a request
    return api.http.post("/documents", **arguments)


def upload(api: Api, holder: str, content: bytes = PDF, **fields: str) -> dict[str, Any]:
    return made(post(api, **form(holder, content, **fields)))


def put(api: Api, document: dict[str, Any], content: bytes = PDF, **fields: str) -> httpx2.Response:
    return api.http.put(f"/documents/{document['id']}", **form(None, content, **fields))


def rows(url: str, query: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode(), values).fetchall()


# --- the life of a document --------------------------------------------------------------------


@pytest.mark.parametrize("content", [PDF, png(), jpeg()])
def test_a_document_is_uploaded_read_and_deleted_with_its_file(
    api: Api, database_url: str, content: bytes
) -> None:
    holder = api.customer()["id"]
    stated = {"side": "FRONT", "documentNumber": "X1", "issuingAuthority": "State"}

    document = upload(api, holder, content, **stated)
    read = ok(api.get(f"/documents/{document['id']}"))
    key = document["id"].removeprefix("Document:")
    [(sealed, sealed_key, platform_id)] = rows(
        database_url,
        "SELECT c.content, d.content_key, d.platform_id FROM document_contents c"
        " JOIN documents d ON d.id = c.document_id WHERE d.id = %s",
        key,
    )
    gone = api.delete(f"/documents/{document['id']}")

    assert document == {
        "id": document["id"],
        "documentHolder": holder,
        **PASSPORT,
        **stated,
        "fileName": "passport.pdf",
        "createdAt": document["createdAt"],
        "updatedAt": document["createdAt"],
    }
    assert read == document
    location = DOCUMENT_KEY.of(bytes(platform_id), document_id_bytes(key))
    opened = uploaded.opened(sealed, KeyRing(SECRET_KEY).decrypt(sealed_key, location))
    assert content not in sealed
    assert opened == content
    assert gone.status_code == 204
    refused(api.get(f"/documents/{document['id']}"), 404, "REFERENCE_NOT_FOUND")
    refused(api.delete(f"/documents/{document['id']}"), 404, "REFERENCE_NOT_FOUND")
    assert not rows(database_url, "SELECT FROM document_contents WHERE document_id = %s", key)


def test_a_large_file_is_kept_in_pieces_until_it_is_replaced_or_deleted(
    api: Api, database_url: str
) -> None:
    large, other = large_pdf(700_000), large_pdf(300_000)
    document = upload(api, api.customer()["id"], large)

    assert (stored_file(database_url, document), pieces(database_url)) == (large, 2)
    ok(put(api, document, other))
    assert (stored_file(database_url, document), pieces(database_url)) == (other, 1)
    ok(put(api, document, PDF))
    assert (stored_file(database_url, document), pieces(database_url)) == (PDF, 0)
    ok(put(api, document, large))
    assert api.delete(f"/documents/{document['id']}").status_code == 204
    assert pieces(database_url) == 0


def test_a_release_that_knows_no_pieces_replaces_and_deletes_a_large_file(
    api: Api, database_url: str
) -> None:
    document = upload(api, api.customer()["id"], large_pdf(700_000))
    key = document["id"].removeprefix("Document:")

    with psycopg.connect(database_url) as connection:
        before = connection.execute("SELECT count(*) FROM document_pieces").fetchone()
        connection.execute(
            "UPDATE document_contents SET content = 'whole' WHERE document_id = %s", [key]
        )
        after = connection.execute("SELECT count(*) FROM document_pieces").fetchone()
        connection.rollback()
        connection.execute("DELETE FROM document_contents WHERE document_id = %s", [key])
        connection.execute("DELETE FROM documents WHERE id = %s", [key])

    assert (before, after, pieces(database_url)) == ((2,), (0,), 0)


def test_the_documented_statement_puts_a_large_file_together(api: Api, database_url: str) -> None:
    files = [large_pdf(700_000), large_pdf(300_000)]
    stored = [upload(api, api.customer()["id"], file) for file in files]
    page = Path("docs/documents.md").read_text(encoding="utf-8")
    statement = page.partition("```sql\n")[2].partition("```")[0]

    with as_psql(database_url) as owner:
        owner.execute(statement.encode())

    assert pieces(database_url) == 0
    assert [stored_file(database_url, document) for document in stored] == files


def large_pdf(size: int) -> bytes:
    """Return a PDF with `size` bytes of comments after its head."""
    head, body = PDF.split(b"\n", 1)
    return head + b"\n" + b"%" * (size - 1) + b"\n" + body


def pieces(url: str) -> int:
    return len(rows(url, "SELECT FROM document_pieces"))


def stored_file(url: str, document: dict[str, Any]) -> bytes:
    """Return the file of `document`, put together and opened."""
    key = document["id"].removeprefix("Document:")
    [(sealed, sealed_key, platform_id)] = rows(
        url,
        "SELECT c.content || coalesce(string_agg(p.content, '' ORDER BY p.number), ''),"
        " d.content_key, d.platform_id FROM documents d"
        " JOIN document_contents c ON c.document_id = d.id"
        " LEFT JOIN document_pieces p ON p.document_id = d.id"
        " WHERE d.id = %s GROUP BY d.id, c.document_id",
        key,
    )
    location = DOCUMENT_KEY.of(bytes(platform_id), document_id_bytes(key))
    return uploaded.opened(sealed, KeyRing(SECRET_KEY).decrypt(sealed_key, location))


def document_id_bytes(key: str) -> bytes:
    return bytes.fromhex(key.replace("-", ""))


def test_a_document_is_replaced_as_a_whole(api: Api) -> None:
    document = upload(api, api.customer()["id"], side="FRONT", documentNumber="X1")

    replaced = ok(put(api, document, png(), documentType="NATIONAL_ID", country="DE"))

    assert replaced == {
        "id": document["id"],
        "documentHolder": document["documentHolder"],
        "documentType": "NATIONAL_ID",
        "country": "DE",
        "fileName": "passport.pdf",
        "createdAt": document["createdAt"],
        "updatedAt": replaced["updatedAt"],
    }
    assert ok(api.get(f"/documents/{document['id']}")) == replaced
    other_holder = form(document["documentHolder"])
    refused(api.http.put(f"/documents/{document['id']}", **other_holder), 400, "INVALID_INPUT")
    unknown = {"id": f"Document:{new_id()}"}
    refused(put(api, unknown), 404, "REFERENCE_NOT_FOUND")


def test_documents_are_listed_newest_first_by_holder(own: Api) -> None:
    person, acme = own.customer()["id"], business(own)
    owner = made(add(own, acme))["id"]
    of_person, of_acme, of_owner = (upload(own, one) for one in (person, acme["id"], owner))

    def listed(**query: str) -> list[dict[str, Any]]:
        data = ok(own.get("/documents", **query))["data"]
        assert isinstance(data, list)
        return data

    assert listed() == [of_owner, of_acme, of_person]
    assert listed(documentHolder=person) == [of_person]
    assert listed(documentHolder=acme["id"]) == [of_acme]
    assert listed(documentHolder=owner) == [of_owner]
    assert listed(documentHolder=f"Customer:{new_id()}") == []
    first = ok(own.get("/documents", limit=2, documentHolder=person))
    assert (first["hasMore"], first["totalCount"]) == (False, 1)
    page = ok(own.get("/documents", limit=2))
    assert listed(cursor=page["nextCursor"]) == [of_person]
    refused(own.get("/documents", documentHolder="Card:1"), 400, "INVALID_INPUT")


def test_a_holder_must_be_a_customer_or_an_owner_of_the_platform(
    api: Api, other_platform: Api
) -> None:
    gone = api.customer()
    ok(api.delete(f"/customers/{gone['id']}"))
    foreign = other_platform.customer()["id"]
    foreign_owner = made(add(other_platform, business(other_platform)))["id"]

    for holder in (f"Customer:{new_id()}", gone["id"], foreign):
        refused(post(api, **form(holder)), 404, "USER_NOT_FOUND")
    for holder in (f"BeneficialOwner:{new_id()}", foreign_owner):
        refused(post(api, **form(holder)), 404, "REFERENCE_NOT_FOUND")
    refused(post(api, **form(f"Card:{new_id()}")), 400, "INVALID_INPUT")


def test_another_platform_neither_reads_nor_changes_a_document(
    api: Api, other_platform: Api
) -> None:
    document = upload(api, api.customer()["id"])

    refused(other_platform.get(f"/documents/{document['id']}"), 404, "REFERENCE_NOT_FOUND")
    refused(put(other_platform, document), 404, "REFERENCE_NOT_FOUND")
    refused(other_platform.delete(f"/documents/{document['id']}"), 404, "REFERENCE_NOT_FOUND")
    assert ok(api.get(f"/documents/{document['id']}")) == document


def test_an_upload_is_made_once_for_its_key(api: Api) -> None:
    holder, key = api.customer()["id"], {"Idempotency-Key": str(uuid4())}

    first = made(post(api, **form(holder), headers=key))
    again = post(api, **form(holder), headers=key)
    other = post(api, **form(holder, png()), headers=key)

    assert (made(again), again.headers["idempotent-replayed"]) == (first, "true")
    refused(other, 409, "CONFLICT")
    assert ok(api.get("/documents", documentHolder=holder))["totalCount"] == 1


# --- files that are refused --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"MZ" + bytes(1_000), "UNSUITABLE_DOCUMENT"),
        (b"PK\x03\x04" + bytes(1_000), "UNSUITABLE_DOCUMENT"),
        (PDF[:-10], "INCOMPLETE"),
        (png(100, 100), "LOW_QUALITY"),
    ],
)
def test_a_file_is_judged_by_its_content_not_by_its_name(
    api: Api, content: bytes, code: str
) -> None:
    holder = api.customer()["id"]

    error = refused(post(api, **form(holder, content)), 400, code)

    assert error["details"] == {"field": "file"}
    assert ok(api.get("/documents", documentHolder=holder))["data"] == []


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("201", "LOW_QUALITY"),
        ("202", "DATA_MISMATCH"),
        ("203", "EXPIRED"),
        ("204", "SUSPECTED_FRAUD"),
        ("205", "UNSUITABLE_DOCUMENT"),
        ("206", "INCOMPLETE"),
    ],
)
def test_the_end_of_its_number_decides_about_a_document(api: Api, end: str, code: str) -> None:
    holder = api.customer()["id"]
    document = upload(api, holder)

    refused(post(api, **form(holder, documentNumber=f"X{end}")), 400, code)
    refused(put(api, document, documentNumber=f"X{end}"), 400, code)

    assert ok(api.get("/documents", documentHolder=holder))["data"] == [document]


def test_a_file_has_10_mib_at_most(api: Api) -> None:
    holder = api.customer()["id"]

    upload(api, holder, pdf_of(DOCUMENT_FILE))
    error = refused(post(api, **form(holder, pdf_of(DOCUMENT_FILE + 1))), 413, "INVALID_INPUT")

    assert str(DOCUMENT_FILE) in error["message"]


def test_a_body_that_never_ends_is_refused_without_reading_on(api: Api) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield (b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n')
        while sent < 20 * DOCUMENT_FILE:
            sent += 65_536
            yield bytes(65_536)

    headers = {"content-type": "multipart/form-data; boundary=b"}
    # The server may have closed the connection while the client was still sending.
    with suppress(httpx2.TransportError):
        refused(post(api, content=endless(), headers=headers), 413, "INVALID_INPUT")

    assert sent < 4 * DOCUMENT_FILE


# --- forms that are refused --------------------------------------------------------------------

BOUNDARY = {"content-type": "multipart/form-data; boundary=b"}


def part(name: str, value: bytes, more: bytes = b"", head: bytes = b"") -> bytes:
    disposition = b'Content-Disposition: form-data; name="' + name.encode() + b'"' + more
    return b"--b\r\n" + disposition + b"\r\n" + head + b"\r\n" + value + b"\r\n"


FILE = part("file", PDF, b'; filename="a.pdf"')
TYPE = part("documentType", b"PASSPORT")
COUNTRY = part("country", b"US")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (TYPE + COUNTRY, "file"),
        (part("file", PDF) + TYPE + COUNTRY, "file"),
        (part("file", b"", b'; filename="a.pdf"') + TYPE + COUNTRY, "file"),
        (FILE + COUNTRY, "documentType"),
        (FILE + part("documentType", b"LETTER") + COUNTRY, "documentType"),
        (FILE + TYPE + part("country", b"us"), "country"),
        (FILE + TYPE + COUNTRY + part("side", b"LEFT"), "side"),
        (FILE + TYPE + COUNTRY + part("documentNumber", b""), "documentNumber"),
        (FILE + TYPE + COUNTRY + part("documentNumber", b"\xff"), "documentNumber"),
        (FILE + TYPE + COUNTRY + part("documentNumber", b"\0"), "documentNumber"),
        (FILE + TYPE + COUNTRY + part("surprise", b"1"), "surprise"),
        (FILE + TYPE + TYPE + COUNTRY, "documentType"),
        (FILE + FILE + TYPE + COUNTRY, "file"),
        (FILE + TYPE + COUNTRY + part("x", PDF, b'; filename="b.pdf"'), "x"),
        (
            part("file", PDF, b'; filename="a.pdf"', b"Content-Transfer-Encoding: base64\r\n")
            + TYPE
            + COUNTRY,
            "file",
        ),
    ],
)
def test_an_invalid_field_is_named(api: Api, body: bytes, field: str) -> None:
    holder = part("documentHolder", api.customer()["id"].encode())

    answer = post(api, content=holder + body + b"--b--\r\n", headers=BOUNDARY)

    error = refused(answer, 400, "INVALID_INPUT")
    assert field in [each["field"] for each in error["details"]["errors"]]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--b--\r\n",
        b"nonsense",
        FILE,
        FILE + TYPE + b"--b",
        b"--b\r\n\r\nno name\r\n--b--\r\n",
        b"--b\r\n" + b"A: b\r\n" * 100 + b"\r\nx\r\n--b--\r\n",
        b"--b\r\nA: " + b"b" * 100_000 + b"\r\n\r\nx\r\n--b--\r\n",
        b"".join(part(f"f{number}", b"") for number in range(100)) + b"--b--\r\n",
        part("documentNumber", b"1" * 100_000) + b"--b--\r\n",
    ],
)
def test_a_body_that_is_no_whole_form_is_refused(api: Api, body: bytes) -> None:
    refused(post(api, content=body, headers=BOUNDARY), 400, "INVALID_INPUT")


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "application/json"},
        {"content-type": "multipart/form-data"},
        {"content-type": "multipart/mixed; boundary=b"},
        {"content-type": f"multipart/form-data; boundary={'b' * 100}"},
        {"content-type": "multipart/form-data; boundary=b" + "; x=y" * 100},
        BOUNDARY | {"content-encoding": "gzip"},
    ],
)
def test_only_a_plain_form_is_read(api: Api, headers: dict[str, str]) -> None:
    refused(post(api, content=FILE, headers=headers), 400, "INVALID_INPUT")


def test_credentials_and_the_permission_come_before_the_body(
    api: Api, api_config: ApiConfig
) -> None:
    viewer = new_tenant(api_config.database_url, permissions=("VIEW",), of=api.tenant)

    unknown = httpx2.post(
        f"{api.root}{BASE_PATH}/documents", content=b"nonsense", timeout=TIMEOUT_S
    )

    refused(unknown, 401, "UNAUTHORIZED")
    with Api(api.root, viewer) as looks:
        refused(post(looks, content=b"nonsense"), 403, "FORBIDDEN")
        assert looks.get("/documents").status_code == 200


# --- limits ------------------------------------------------------------------------------------


def test_a_customer_has_a_limited_number_of_documents(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "DOCUMENT_LIMIT", 2)
    holder = api.customer()["id"]
    first, _ = upload(api, holder), upload(api, holder)

    error = refused(post(api, **form(holder)), 409, "CONFLICT")
    assert api.delete(f"/documents/{first['id']}").is_success

    assert error["details"] == {"limit": 2}
    upload(api, holder)


def test_the_files_of_a_platform_have_limited_bytes(api_config: ApiConfig) -> None:
    config = replace(api_config, document_bytes=100_000)
    with server(config) as root, Api(root, new_tenant(config.database_url)) as api:
        holder = api.customer()["id"]
        large, small = upload(api, holder, pdf_of(60_000)), upload(api, holder)

        refused(post(api, **form(holder, pdf_of(40_000))), 409, "CONFLICT")
        error = refused(put(api, small, pdf_of(40_001)), 409, "CONFLICT")
        ok(put(api, small, pdf_of(40_000)))
        refused(post(api, **form(holder)), 409, "CONFLICT")
        assert api.delete(f"/documents/{large['id']}").is_success
        upload(api, holder, pdf_of(60_000))
        first = new_tenant(config.database_url)
        with Api(root, first) as other:
            refused(post(other, **form(other.customer()["id"], pdf_of(100_001))), 409, "CONFLICT")

    assert error["details"] == {"limit": 100_000}


def test_a_form_is_not_read_when_its_file_has_no_room(api_config: ApiConfig) -> None:
    config, key = replace(api_config, document_bytes=100_000), {"Idempotency-Key": str(uuid4())}
    malformed = {"content-type": "multipart/form-data; boundary=b"}
    with server(config) as root, Api(root, new_tenant(config.database_url)) as api:
        holder = api.customer()["id"]
        document = made(post(api, **form(holder, pdf_of(60_000)), headers=key))
        path = f"/documents/{document['id']}"

        def put_malformed(size: int) -> httpx2.Response:
            return api.http.put(path, content=b"x" * size, headers=malformed)

        # What is said to have 272,000 bytes has a file of 140,000 or more.
        large = post(api, content=b"x" * 272_000, headers=malformed)
        refused(post(api, content=b"nonsense", headers=malformed), 400, "INVALID_INPUT")
        upload(api, holder, pdf_of(38_000))
        full = post(api, content=b"nonsense", headers=malformed)
        larger, other = put_malformed(272_000), put_malformed(100)
        repeated = post(api, **form(holder, pdf_of(60_000)), headers=key)

    for answer in (large, full, larger):
        assert refused(answer, 409, "CONFLICT")["details"] == {"limit": 100_000}
    refused(other, 400, "INVALID_INPUT")  # It may be as large as the one before.
    assert made(repeated) == document


@pytest.mark.parametrize("is_declared", [True, False])
def test_forms_in_progress_are_counted_by_their_bytes_until_they_end(
    api_config: ApiConfig,
    *,
    is_declared: bool,
) -> None:
    whole, headers = b"x" * 5_000_000, {"content-type": "multipart/form-data; boundary=b"}
    chunks = (whole[start : start + 50_000] for start in range(0, len(whole), 50_000))
    app = create_app(api_config)
    tenant = new_tenant(api_config.database_url)
    with serving(GuardedApp(app)) as served, Api(url_of(served), tenant) as api:
        progress = app.state.services.uploads
        most, begin = [0], progress.begin

        def begin_and_note(platform_id: Id, size: int = 1) -> None:
            begin(platform_id, size)
            most.append(progress._files.total())

        progress.begin = begin_and_note
        refused(
            post(api, content=whole if is_declared else chunks, headers=headers),
            400,
            "INVALID_INPUT",
        )
        upload(api, api.customer()["id"], pdf_of(2_000_000))

        assert max(most) >= 2_000_000
        assert not progress._files


def test_the_time_of_a_busy_process_is_not_that_of_the_sender(
    api_config: ApiConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_s, size = 1.0, 1_500_000
    feed, spent = FormReader.feed, []

    def feed_slowly(reader: FormReader, piece: bytes) -> None:
        begin = time.monotonic()
        while time.monotonic() - begin < 2 * limit_s / (size / PIECE):
            pass
        spent.append(time.monotonic() - begin)
        feed(reader, piece)

    monkeypatch.setattr(FormReader, "feed", feed_slowly)
    config = replace(api_config, body_timeout_s=limit_s)
    with server(config) as root, Api(root, new_tenant(config.database_url)) as api:
        upload(api, api.customer()["id"], pdf_of(size))

    assert sum(spent) > limit_s


def test_a_full_platform_is_told_what_else_is_wrong_with_a_document(api_config: ApiConfig) -> None:
    config = replace(api_config, document_bytes=100_000)
    with server(config) as root, Api(root, new_tenant(config.database_url)) as api:
        customer = api.customer(fullName="Ada 001", **COMPLETE)
        document = upload(api, customer["id"], pdf_of(98_000))
        ok(submit(api, customer))

        for size in (200, 60_000, 400_000):
            unknown = put(api, {"id": f"Document:{uuid4()}"}, pdf_of(size))
            error = refused(put(api, document, pdf_of(size)), 409, "CONFLICT")

            refused(unknown, 404, "REFERENCE_NOT_FOUND")
            assert error["details"] == {"reason": "DOCUMENT_SUBMITTED"}
            refused(post(api, **form(customer["id"], pdf_of(size))), 409, "CONFLICT")


def test_a_smaller_file_replaces_one_where_the_limit_was_lowered(api_config: ApiConfig) -> None:
    tenant = new_tenant(api_config.database_url)
    with server(api_config) as root, Api(root, tenant) as api:
        document = upload(api, api.customer()["id"], pdf_of(80_000))

    with server(replace(api_config, document_bytes=50_000)) as root, Api(root, tenant) as api:
        ok(put(api, document, pdf_of(60_000)))
        refused(put(api, document, pdf_of(70_000)), 409, "CONFLICT")


def test_concurrent_uploads_do_not_exceed_the_bytes_of_a_platform(
    api_config: ApiConfig, database_url: str
) -> None:
    config = replace(api_config, document_bytes=50_000)
    tenant = new_tenant(config.database_url)
    with server(config) as root, Api(root, tenant) as api:
        holders = [api.customer()["id"] for _ in range(12)]
        with ThreadPoolExecutor(12) as pool:
            answers = list(
                pool.map(lambda holder: post(api, **form(holder, pdf_of(10_000))), holders)
            )

    assert sorted(answer.status_code for answer in answers) == [201] * 5 + [409] * 7
    [(used,)] = rows(
        database_url, "SELECT bytes FROM document_usage WHERE platform_id = %s", tenant.platform_id
    )
    assert used == 50_000


# --- verifications -----------------------------------------------------------------------------


def test_an_individual_needs_an_identity_document(api: Api) -> None:
    customer = api.customer(fullName="Ada 001", **COMPLETE)

    without = ok(submit(api, customer))
    upload(api, customer["id"], documentType="UTILITY_BILL")
    with_another = ok(submit(api, customer))
    upload(api, customer["id"])
    complete = ok(submit(api, customer))

    assert kinds(without) == kinds(with_another) == [("MISSING_IDENTITY_DOCUMENT", None)]
    [error] = without["errors"]
    assert error["resourceId"] == customer["id"]
    assert error["acceptedDocumentTypes"] == ["PASSPORT", "DRIVERS_LICENSE", "NATIONAL_ID"]
    assert (complete["verificationStatus"], complete["errors"]) == ("PENDING_MANUAL_REVIEW", [])


def test_a_business_needs_documents_of_what_it_is_and_who_owns_it(api: Api) -> None:
    customer = business(api, registrationNumber="42-001", countriesOfOperation=["US"])
    ok(api.patch(f"/customers/{customer['id']}", {"customerType": "BUSINESS", "address": ADDRESS}))
    owner = made(add(api, customer, roles=["UBO", "CONTROL_PERSON"]))

    without = ok(submit(api, customer))
    for kind in PROOFS:
        upload(api, owner["id"], documentType=kind)
    of_owner = ok(submit(api, customer))
    for kind in PROOFS:
        upload(api, customer["id"], documentType=kind)
    unidentified = ok(submit(api, customer))
    upload(api, owner["id"])
    complete = ok(submit(api, customer))

    assert kinds(without) == kinds(of_owner)
    assert [kind for kind, _ in kinds(without)] == [
        "MISSING_LEGAL_PRESENCE_DOCUMENT",
        "MISSING_OWNERSHIP_STRUCTURE_DOCUMENT",
        "MISSING_CONTROL_STRUCTURE_DOCUMENT",
        "MISSING_PROOF_OF_ADDRESS_DOCUMENT",
        "MISSING_IDENTITY_DOCUMENT",
    ]
    [error] = unidentified["errors"]
    assert (error["type"], error["resourceId"]) == ("MISSING_IDENTITY_DOCUMENT", owner["id"])
    assert error["acceptedDocumentTypes"] == ["PASSPORT", "DRIVERS_LICENSE", "NATIONAL_ID"]
    assert complete["verificationStatus"] == "PENDING_MANUAL_REVIEW"


@pytest.mark.parametrize(
    ("share", "roles", "is_needed"),
    [
        (25, ["UBO"], True),
        (24.99, ["UBO"], False),
        (60, ["DIRECTOR"], False),
        (1, ["CONTROL_PERSON"], True),
    ],
)
def test_owners_of_a_quarter_and_control_persons_identify_themselves(
    api: Api, share: float, roles: list[str], *, is_needed: bool
) -> None:
    customer = business(api, registrationNumber="42-001", countriesOfOperation=["US"])
    owner = made(add(api, customer, share, roles=roles))

    verification = ok(submit(api, customer))

    found = ("MISSING_IDENTITY_DOCUMENT", owner["id"])
    assert (found in [(e["type"], e["resourceId"]) for e in verification["errors"]]) is is_needed


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        ("301", "POOR_QUALITY_DOCUMENT"),
        ("302", "INVALID_DOCUMENT"),
        ("303", "EXPIRED_DOCUMENT"),
        ("304", "SUSPECTED_FRAUD_DOCUMENT"),
        ("305", "WRONG_DOCUMENT_TYPE"),
        ("306", "INCOMPLETE_DOCUMENT"),
    ],
)
def test_a_verification_names_the_document_to_replace(api: Api, end: str, kind: str) -> None:
    customer = api.customer(fullName="Ada 001", **COMPLETE)
    document = upload(api, customer["id"], documentNumber=f"X{end}")

    wrong = ok(submit(api, customer))
    ok(put(api, document, documentNumber="X"))
    right = ok(submit(api, customer))

    assert wrong["verificationStatus"] == "RESOLVE_ERRORS"
    assert [(each["type"], each["resourceId"]) for each in wrong["errors"]] == [
        (kind, document["id"])
    ]
    assert right["verificationStatus"] == "PENDING_MANUAL_REVIEW"


def test_a_document_that_was_submitted_stays_as_it_is(api: Api) -> None:
    customer = api.customer(fullName="Ada 001", **COMPLETE)
    document = upload(api, customer["id"])
    ok(submit(api, customer))

    for answer in (api.delete(f"/documents/{document['id']}"), put(api, document)):
        error = refused(answer, 409, "CONFLICT")
        assert error["details"] == {"reason": "DOCUMENT_SUBMITTED"}

    assert ok(api.get(f"/documents/{document['id']}")) == document
    later = upload(api, customer["id"])
    assert api.delete(f"/documents/{later['id']}").status_code == 204


def test_a_verification_waits_for_a_document_that_is_being_replaced(
    api: Api, database_url: str
) -> None:
    customer = api.customer(fullName="Ada 001", **COMPLETE)
    key = upload(api, customer["id"])["id"].removeprefix("Document:")
    waiting = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE %s"
    )

    with ThreadPoolExecutor() as pool, psycopg.connect(database_url) as replacing:
        change = "UPDATE documents SET document_type = 'UTILITY_BILL' WHERE id = %s"
        replacing.execute(change, [key])
        verification = pool.submit(submit, api, customer)
        eventually(lambda: rows(database_url, waiting, "%documents%")[0][0] > 0)
        replacing.commit()

    assert kinds(ok(verification.result())) == [("MISSING_IDENTITY_DOCUMENT", None)]


def test_the_documents_of_a_deleted_customer_go_with_it_unless_they_were_submitted(
    api: Api, database_url: str
) -> None:
    customer = api.customer(fullName="Ada 001", **COMPLETE)
    submitted = upload(api, customer["id"])
    ok(submit(api, customer))
    unused = upload(api, customer["id"])

    ok(api.delete(f"/customers/{customer['id']}"))

    refused(api.get(f"/documents/{unused['id']}"), 404, "REFERENCE_NOT_FOUND")
    assert ok(api.get(f"/documents/{submitted['id']}")) == submitted
    [(due,)] = rows(
        database_url,
        "SELECT delete_after FROM documents WHERE id = %s",
        submitted["id"].removeprefix("Document:"),
    )
    kept_days = (due - datetime.now(UTC)).days
    assert 5 * 365 - 1 <= kept_days <= 5 * 366
