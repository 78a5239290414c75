"""Files of documents in a directory: complete before their row, and gone after it."""

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest
from structlog.testing import capture_logs

from cardledger.api.app import ApiConfig
from cardledger.api.background.upkeep import Upkeep
from cardledger.install import document_findings
from cardledger.install.findings import FAIL, OK, WARN
from cardledger.ledger.customers.documents import registry, uploaded
from cardledger.ledger.customers.documents import store as document_store
from cardledger.ledger.customers.documents.directory import (
    MARKER,
    DirectoryError,
    FileDirectory,
    FileLostError,
    FilePlace,
    StoredFile,
)
from cardledger.ledger.customers.documents.store import DocumentStore, owner
from cardledger.ledger.storage.engines import async_engine
from cardledger.ledger.storage.ids import new_id
from cardledger.ledger.storage.platform_connections import PlatformConnections
from cardledger.ledger.storage.secrets.key_ring import KeyRing
from cardledger.ledger.storage.secrets.sealed_columns import DOCUMENT_KEY
from cardledger.schema.ids import Id
from tests.api.support import SECRET_KEY, Api, made, new_tenant, ok, refused, server
from tests.api.test_documents import post, put, rows, upload
from tests.files import PDF, form, pdf_of, png


@dataclass(frozen=True)
class Office:
    """A platform of an API that keeps files in a directory."""

    api: Api
    path: Path
    config: ApiConfig
    database_url: str

    @property
    def platform_id(self) -> Id:
        return Id(self.api.tenant.platform_id)

    def files(self) -> list[Path]:
        return sorted(
            each for each in self.path.rglob("*") if each.is_file() and each.name != MARKER
        )

    @property
    def directory(self) -> FileDirectory:
        return FileDirectory(self.path, owner_of(self.database_url))

    def row(self, document: dict[str, Any]) -> tuple[StoredFile, bytes]:
        """Return the file that the row of a document names, and the key of it."""
        key = Id.parse(document["id"].removeprefix("Document:"))
        [(content, file_id, digest, sealed_key)] = rows(
            self.database_url,
            "SELECT c.content, c.file_id::text, c.file_sha256, d.content_key"
            " FROM document_contents c JOIN documents d ON d.id = c.document_id WHERE d.id = %s",
            str(key),
        )
        assert content is None
        location = DOCUMENT_KEY.of(self.platform_id, key)
        opened = KeyRing(SECRET_KEY).decrypt(sealed_key, location)
        place = FilePlace(self.platform_id, key, Id.parse(file_id))
        return StoredFile(place, digest), opened

    def read(self, document: dict[str, Any]) -> bytes:
        file, key = self.row(document)
        return uploaded.opened(self.directory.read(file), key)

    def upkeep(self, later: timedelta) -> int:
        """Run the hourly job once in each hour of a day that begins `later`."""

        async def run() -> int:
            url = self.config.database_url
            platforms, installation = PlatformConnections(url, keyed=True), async_engine(url)
            removed = 0
            for hour in range(24):
                at = datetime.now(UTC) + later + timedelta(hours=hour)
                job = Upkeep(
                    platforms,
                    installation,
                    files=DocumentStore(self.path, installation),
                    clock=lambda at=at: at,  # type: ignore[misc]
                )
                removed += await job.step()
            await platforms.dispose()
            await installation.dispose()
            return removed

        return asyncio.run(run())


_Entries = AbstractContextManager[Iterator[os.DirEntry[str]]]


def owner_of(database_url: str) -> str:
    with psycopg.connect(database_url) as connection:
        return owner(connection)


def mark(path: Path, database_url: str) -> None:
    """Take a directory into use, as `cardledger doctor` says."""
    (path / MARKER).write_text(f"{owner_of(database_url)}\n")


@pytest.fixture
def office(root: str, api_config: ApiConfig, database_url: str, tmp_path: Path) -> Iterator[Office]:
    path = tmp_path / "documents"
    path.mkdir(mode=0o700)
    mark(path, database_url)
    config = replace(api_config, documents_dir=path)
    assert root  # Its worker is the one of this API as well.
    with server(config) as own, Api(own, new_tenant(config.database_url)) as api:
        yield Office(api, path, config, database_url)


# --- the life of a file ------------------------------------------------------------------------


@pytest.mark.parametrize("has_key", [False, True])
def test_a_file_is_stored_encrypted_under_a_name_of_ids(office: Office, *, has_key: bool) -> None:
    holder = office.api.customer()["id"]
    headers = {"Idempotency-Key": str(uuid4())} if has_key else {}

    document = made(post(office.api, **form(holder), headers=headers))
    again = post(office.api, **form(holder), headers=headers) if has_key else None

    if again is not None:
        assert made(again) == document
    [path] = office.files()
    stored, _ = office.row(document)
    key = stored.place.document_id.hex()
    name = f"{key}-{stored.place.file_id.hex()}"
    assert path.relative_to(office.path) == Path(office.platform_id.hex(), key[-2:], name)
    assert PDF not in path.read_bytes()
    assert office.read(document) == PDF
    assert ok(office.api.get(f"/documents/{document['id']}")) == document
    modes = {each.stat().st_mode & 0o777 for each in (path.parent, path.parent.parent)}
    assert (path.stat().st_mode & 0o777, modes) == (0o600, {0o700})


def test_nothing_that_a_sender_states_is_part_of_a_path(office: Office) -> None:
    holder = office.api.customer()["id"]
    stated = form(holder)
    stated["files"] = {"file": ("../../../etc/passwd", PDF, "application/pdf")}

    document = made(post(office.api, **stated))

    [path] = office.files()
    assert path.is_relative_to(office.path)
    assert "passwd" not in str(path)
    assert document["fileName"] == "passwd"


def test_a_replaced_file_is_removed_after_the_commit(office: Office) -> None:
    document = upload(office.api, office.api.customer()["id"])
    [before] = office.files()

    replaced = ok(put(office.api, document, png()))

    [after] = office.files()
    assert after != before
    assert office.read(replaced) == png()


def test_a_file_goes_with_its_document_and_with_its_customer(office: Office) -> None:
    customer = office.api.customer()
    first, second = (upload(office.api, customer["id"]) for _ in range(2))

    assert office.api.delete(f"/documents/{first['id']}").status_code == 204
    assert office.files() == [_path_of(office, second)]
    ok(office.api.delete(f"/customers/{customer['id']}"))

    assert office.files() == []


def test_a_document_in_postgresql_moves_to_the_directory_and_back(
    office: Office, api_config: ApiConfig
) -> None:
    with server(api_config) as root, Api(root, office.api.tenant) as without:
        document = upload(without, office.api.customer()["id"])
        assert office.files() == []

        ok(put(office.api, document, png()))
        assert office.read(document) == png()
        ok(put(without, document, PDF))

    [(content, file_id)] = rows(
        office.database_url,
        "SELECT length(content), file_id FROM document_contents WHERE document_id = %s",
        document["id"].removeprefix("Document:"),
    )
    assert (content, file_id) == (len(PDF) + 16, None)


def _path_of(office: Office, document: dict[str, Any]) -> Path:
    stored, _ = office.row(document)
    key = stored.place.document_id.hex()
    name = f"{key}-{stored.place.file_id.hex()}"
    return office.path / office.platform_id.hex() / key[-2:] / name


# --- what is refused leaves nothing ------------------------------------------------------------


@pytest.mark.parametrize("has_key", [False, True])
def test_a_refused_upload_leaves_no_file(
    office: Office, monkeypatch: pytest.MonkeyPatch, *, has_key: bool
) -> None:
    monkeypatch.setattr(registry, "DOCUMENT_LIMIT", 0)
    api, headers = office.api, {"Idempotency-Key": str(uuid4())} if has_key else {}
    holder = api.customer()["id"]

    refused(post(api, **form(holder), headers=headers), 409, "CONFLICT")
    refused(post(api, **form(f"Customer:{new_id()}"), headers={}), 404, "USER_NOT_FOUND")
    refused(post(api, **form(holder, side="LEFT"), headers={}), 400, "INVALID_INPUT")
    refused(post(api, **form(holder, documentNumber="X201"), headers={}), 400, "LOW_QUALITY")
    refused(put(api, {"id": f"Document:{new_id()}"}), 404, "REFERENCE_NOT_FOUND")

    assert office.files() == []


def test_a_submitted_document_keeps_its_file(office: Office) -> None:
    document = upload(office.api, office.api.customer()["id"])
    with psycopg.connect(office.database_url) as connection:
        connection.execute(
            "UPDATE documents SET submitted_at = now() WHERE id = %s",
            [document["id"].removeprefix("Document:")],
        )

    refused(put(office.api, document, png()), 409, "CONFLICT")

    assert office.read(document) == PDF
    assert office.files() == [_path_of(office, document)]


# --- a directory that fails --------------------------------------------------------------------


def test_a_full_disk_is_503_and_changes_nothing(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = office.api.customer()["id"]
    document = upload(office.api, holder)
    headers = {"Idempotency-Key": str(uuid4())}

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        refused(
            post(office.api, **form(holder, png()), headers=headers), 503, "SERVICE_UNAVAILABLE"
        )
        refused(put(office.api, document, png()), 503, "SERVICE_UNAVAILABLE")

    assert office.files() == [_path_of(office, document)]
    assert office.read(document) == PDF
    assert ok(office.api.get("/documents"))["data"] == [document]
    second = made(post(office.api, **form(holder, png()), headers=headers))
    assert office.read(second) == png()


@pytest.mark.parametrize("has_key", [False, True])
def test_a_form_of_unknown_length_is_received_as_long_as_its_file_has_room(
    office: Office, monkeypatch: pytest.MonkeyPatch, *, has_key: bool
) -> None:
    written: list[int] = []
    write = FileDirectory.write

    def spy(directory: FileDirectory, platform: Id, document: Id, sealed: bytes) -> StoredFile:
        written.append(len(sealed))
        return write(directory, platform, document, sealed)

    monkeypatch.setattr(FileDirectory, "write", spy)
    config = replace(office.config, document_bytes=100_000)
    with server(config) as root, Api(root, office.api.tenant) as api:
        holder = api.customer()["id"]

        def post_chunked(size: int, key: str) -> httpx2.Response:
            whole = api.http.build_request("POST", "/documents", **form(holder, pdf_of(size)))
            pieces = whole.read()
            headers = {"content-type": whole.headers["content-type"]}
            headers |= {"Idempotency-Key": key} if has_key else {}
            chunks = (pieces[at : at + 10_000] for at in range(0, len(pieces), 10_000))
            return post(api, content=chunks, headers=headers)

        first = str(uuid4())
        document = made(post_chunked(60_000, first))
        assert len(written) == 1
        for size in (40_001, 90_000, 1_000_000):
            error = refused(post_chunked(size, str(uuid4())), 409, "CONFLICT")
            assert error["details"] == {"limit": 100_000}
        assert len(written) == 1, "what has no room is not even written"
        assert len(office.files()) == 1
        if has_key:
            assert made(post_chunked(60_000, first)) == document
        made(post_chunked(40_000, str(uuid4())))


def test_without_the_directory_uploads_are_503_and_it_is_not_created(office: Office) -> None:
    holder = office.api.customer()["id"]
    office.path.rename(office.path.with_name("unmounted"))

    refused(post(office.api, **form(holder)), 503, "SERVICE_UNAVAILABLE")

    assert not office.path.exists()
    assert ok(office.api.get("/documents"))["data"] == []
    office.path.with_name("unmounted").rename(office.path)
    upload(office.api, holder)


def test_another_content_than_the_stored_one_is_found_when_it_is_read(office: Office) -> None:
    document = upload(office.api, office.api.customer()["id"])
    path = _path_of(office, document)
    whole = path.read_bytes()

    path.write_bytes(whole[:-1])
    with pytest.raises(FileLostError, match="digest"):
        office.read(document)
    path.write_bytes(whole)
    assert office.read(document) == PDF
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(DirectoryError):
        office.read(document)
    path.unlink()
    with pytest.raises(FileLostError, match="not in the directory"):
        office.read(document)


# --- the directory of another database, or of none -----------------------------------------------


def test_a_directory_without_the_marker_is_not_written_to(office: Office) -> None:
    """The place of a volume that is not mounted is an empty directory."""
    holder = office.api.customer()["id"]
    document = upload(office.api, holder)
    office.path.rename(office.path.with_name("unmounted"))
    office.path.mkdir(mode=0o700)

    refused(post(office.api, **form(holder, png())), 503, "SERVICE_UNAVAILABLE")
    refused(put(office.api, document, png()), 503, "SERVICE_UNAVAILABLE")

    assert list(office.path.iterdir()) == []
    with psycopg.connect(office.database_url) as connection:
        found = document_findings.examine(connection, office.path)
    assert (found.state, MARKER in found.detail) == (FAIL, True)
    assert found.fix is not None
    assert found.fix.endswith(f"echo {owner_of(office.database_url)} > {office.path / MARKER}")


def test_files_of_the_original_are_safe_from_a_copy_of_its_database(office: Office) -> None:
    holder = office.api.customer()["id"]
    document = upload(office.api, holder)
    office.directory.write(office.platform_id, new_id(), b"of a request that was killed")
    before = office.files()
    (office.path / MARKER).write_text("7412/16384\n")  # Of the original: this is its copy.

    refused(post(office.api, **form(holder, png())), 503, "SERVICE_UNAVAILABLE")
    with capture_logs() as logs:
        removed = office.upkeep(timedelta(days=2))
        assert office.api.delete(f"/documents/{document['id']}").status_code == 204

    assert removed == 0
    assert office.files() == before
    assert {log["event"] for log in logs if log["log_level"] == "error"} >= {"documents not swept"}


def test_the_first_document_of_a_database_marks_an_empty_directory(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, used = tmp_path / "new", tmp_path / "used"
    (path / "lost+found").mkdir(parents=True)
    used.mkdir()
    (used / "file").touch()

    async def write(path: Path) -> StoredFile:
        installation = async_engine(office.config.database_url)
        store = DocumentStore(path, installation)
        try:
            return await store.write(office.platform_id, new_id(), b"sealed")
        finally:
            store.close()
            await installation.dispose()

    upload(office.api, office.api.customer()["id"])
    with pytest.raises(DirectoryError, match=MARKER):
        asyncio.run(write(path))
    monkeypatch.setattr(document_store, "_HAS_DOCUMENTS", "SELECT false")
    with pytest.raises(DirectoryError, match=MARKER):
        asyncio.run(write(used))
    stored = asyncio.run(write(path))

    assert (path / MARKER).read_text() == f"{owner_of(office.database_url)}\n"
    assert FileDirectory(path, "").read(stored) == b"sealed"
    assert [each.name for each in used.iterdir()] == ["file"]


def test_a_disk_that_hangs_takes_no_thread_of_the_event_loop(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_store, "_WAIT_S", 0.01)
    begun, ends = threading.Barrier(5), threading.Event()

    def hang(_: FileDirectory) -> None:
        begun.wait(timeout=30)
        ends.wait()

    async def use() -> str:
        installation = async_engine(office.config.database_url)
        store = DocumentStore(office.path, installation)
        hanging = [asyncio.create_task(store.run(hang)) for _ in range(4)]
        try:
            await asyncio.to_thread(begun.wait, 30)
            with pytest.raises(DirectoryError, match="does not answer"):
                await store.run(FileDirectory.check)
            names = await asyncio.to_thread(lambda: threading.current_thread().name)
            ends.set()
            await asyncio.gather(*hanging)
            await store.run(FileDirectory.check)
            return names
        finally:
            ends.set()
            store.close()
            await installation.dispose()

    assert "documents" not in asyncio.run(use())


def test_the_files_of_one_platform_leave_threads_to_others(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_store, "_WAIT_S", 0.1)
    begun, ends = threading.Semaphore(0), threading.Event()

    def hang(_: FileDirectory) -> None:
        begun.release()
        ends.wait()

    async def use() -> list[BaseException | None]:
        installation = async_engine(office.config.database_url)
        store = DocumentStore(office.path, installation)
        platform, other = office.platform_id, new_id()
        first = [asyncio.create_task(store.run(hang, platform_id=platform)) for _ in range(2)]
        try:
            for _ in first:
                assert await asyncio.to_thread(begun.acquire, timeout=30)
            more = [store.run(hang, platform_id=platform) for _ in range(6)]
            async with asyncio.timeout(30):
                refusals = await asyncio.gather(*more, return_exceptions=True)
            await store.run(FileDirectory.check, platform_id=other)
            ends.set()
            await asyncio.gather(*first)
            await store.run(FileDirectory.check, platform_id=platform)
            assert not store._platforms, "nothing is kept of platforms without files in progress"
            return refusals
        finally:
            ends.set()
            store.close()
            await installation.dispose()

    refusals = asyncio.run(use())

    assert [type(refusal) for refusal in refusals] == [DirectoryError] * 6


def test_a_platform_with_many_files_at_a_time_is_429_while_the_disk_answers(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_store, "_WAIT_S", 0.5)
    holder, ends = office.api.customer()["id"], threading.Event()
    write = FileDirectory.write

    def write_slowly(
        directory: FileDirectory, platform: Id, document: Id, sealed: bytes
    ) -> StoredFile:
        ends.wait(0.3)
        return write(directory, platform, document, sealed)

    monkeypatch.setattr(FileDirectory, "write", write_slowly)
    with capture_logs() as logs, ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: post(office.api, **form(holder)), range(12)))
        ends.set()

    assert {answer.status_code for answer in answers} == {201, 429}
    busy = next(answer for answer in answers if answer.status_code == 429)
    refused(busy, 429, "RATE_LIMITED")
    assert busy.headers["Retry-After"] == "1"
    levels = {each["log_level"] for each in logs if each["event"] == "document not stored"}
    assert "error" not in levels


# --- what is left over -------------------------------------------------------------------------


def test_a_left_over_file_is_removed_after_a_day(office: Office) -> None:
    document = upload(office.api, office.api.customer()["id"], pdf_of(5_000))
    directory = office.directory
    stored, _ = office.row(document)
    directory.write(office.platform_id, new_id(), b"of a request that was killed")
    directory.write(office.platform_id, stored.place.document_id, b"of a replacement")
    part = _path_of(office, document)
    part = part.with_name(f"{part.name[:-1]}0.part")
    part.write_bytes(b"of a power failure")
    note = part.with_name("README")
    note.write_bytes(b"of an operator")

    too_soon = office.upkeep(timedelta())
    removed = office.upkeep(timedelta(days=1, minutes=1))

    assert (too_soon, removed) == (0, 3)
    assert office.files() == sorted([_path_of(office, document), note])


def test_files_of_another_database_are_not_removed(office: Office) -> None:
    office.directory.write(new_id(), new_id(), b"of a platform of another database")

    assert office.upkeep(timedelta(days=2)) == 0
    assert len(office.files()) == 1


def test_the_file_of_a_deleted_customer_is_removed_when_its_time_is_over(office: Office) -> None:
    document = upload(office.api, office.api.customer()["id"])
    with psycopg.connect(office.database_url) as connection:
        connection.execute(
            "UPDATE documents SET delete_after = now() - interval '1 s' WHERE id = %s",
            [document["id"].removeprefix("Document:")],
        )

    assert office.upkeep(timedelta()) == 1
    assert office.files() == []


def test_a_process_with_another_directory_logs_an_error(office: Office, tmp_path: Path) -> None:
    document = upload(office.api, office.api.customer()["id"])
    same = _errors(office)

    other = tmp_path / "other"
    other.mkdir()
    mark(other, office.database_url)
    different = _errors(replace(office, path=other))
    missing = _errors(replace(office, path=tmp_path / "missing"))

    key = document["id"].removeprefix("Document:")
    assert ("document not in its directory", key) not in same
    assert ("document not in its directory", key) in different
    assert {event for event, _ in missing} == {"documents not swept"}


def _errors(office: Office) -> list[tuple[str, str | None]]:
    with capture_logs() as logs:
        office.upkeep(timedelta())
    return [(log["event"], log.get("document")) for log in logs if log["log_level"] == "error"]


def test_an_unreadable_folder_of_one_platform_does_not_end_the_sweep(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(office.api, office.api.customer()["id"])
    second = Id(new_tenant(office.config.database_url).platform_id)
    for platform_id in (office.platform_id, second):
        office.directory.write(platform_id, new_id(), b"of a request that was killed")
    scan, lstat = os.scandir, Path.lstat

    def failing_scan(path: Path) -> _Entries:
        if office.platform_id.hex() in str(path):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return scan(path)

    def failing_stat(path: Path) -> os.stat_result:
        if office.platform_id.hex() in str(path):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return lstat(path)

    monkeypatch.setattr(os, "scandir", failing_scan)
    monkeypatch.setattr(Path, "lstat", failing_stat)
    with capture_logs() as logs:
        removed = office.upkeep(timedelta(days=1, minutes=1))

    assert removed == 1
    errors = [log for log in logs if log["event"] == "documents not swept"]
    assert {(log["log_level"], log["platform"]) for log in errors} == {
        ("error", str(office.platform_id))
    }
    texts = " ".join(log["error"] for log in errors)
    assert os.strerror(errno.EACCES) in texts
    assert os.strerror(errno.ESTALE) in texts


def test_a_full_disk_does_not_keep_left_over_files(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.directory.write(office.platform_id, new_id(), b"of a request that was killed")
    probes = [office.path / f".probe-{new_id().hex()}{end}" for end in ("", ".part")]
    for probe in probes:
        probe.touch()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    too_soon = office.upkeep(timedelta())
    young = office.files()
    with capture_logs() as logs:
        removed = office.upkeep(timedelta(days=1, minutes=1))

    assert (too_soon, removed) == (0, 1)
    assert set(probes) <= set(young)
    assert office.files() == []
    assert "documents cannot be stored" in {log["event"] for log in logs}


# --- doctor ------------------------------------------------------------------------------------


def test_doctor_finds_a_directory_that_is_not_the_one_of_the_api(
    office: Office, tmp_path: Path
) -> None:
    document = upload(office.api, office.api.customer()["id"])
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    mark(other, office.database_url)

    with psycopg.connect(office.database_url) as connection:
        connection.execute(  # Of other tests, whose directories are gone.
            "DELETE FROM document_contents WHERE document_id <> %s",
            [document["id"].removeprefix("Document:")],
        )
        same = document_findings.examine(connection, office.path)
        different = document_findings.examine(connection, other)
        missing = document_findings.examine(connection, tmp_path / "missing")
        unset = document_findings.examine(connection, None)
        office.path.chmod(0o755)
        is_open = document_findings.examine(connection, office.path)

    states = [each.state for each in (same, different, missing, unset, is_open)]
    assert states == [OK, FAIL, FAIL, FAIL, WARN], (same, different, missing, unset, is_open)
    assert is_open.fix == f"chmod 700 {office.path}"
