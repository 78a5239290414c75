"""Files of documents in a directory that all API processes share, instead of in PostgreSQL.

A file is complete on the disk before the row that names it is committed, has a name of its own, and
is removed after the row is gone. So a row never names a file that is not there; a crash leaves at
most a file that no row names, which the API removes a day later. What is in a file is encrypted, as
it would be in PostgreSQL, and its key is in the row.

The directory itself is not created, and a file in it, the marker, says which database it is of.
Below the place of a volume that is not mounted, files would end on another disk; a copy of a
database would remove the files of the original. Names consist of ids, so nothing that a sender
states is part of a path.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Final

from cardledger.ledger.storage.ids import new_id
from cardledger.schema.ids import Id

LEFT_AFTER: Final = timedelta(days=1)
"""The age at which a file that no row names is left over: no request takes nearly as long."""

MARKER: Final = ".cardledger"
"""The file in the root of the directory that says which database it is of."""

_SLICES: Final = 24
_MARKER_LIMIT: Final = 200  # Bytes.
_OF_A_VOLUME: Final = frozenset({"lost+found"})  # In an empty file system, too.
_READ_LIMIT: Final = 64 * 1024 * 1024  # Bytes; a document has fewer.
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_TEMPORARY: Final = ".part"
_PLATFORM: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_PROBE: Final = re.compile(r"\.probe-[0-9a-f]{32}(\.part)?", re.ASCII)
_FOLDER: Final = re.compile(r"[0-9a-f]{2}", re.ASCII)
_NAME: Final = re.compile(r"([0-9a-f]{32})-([0-9a-f]{32})", re.ASCII)


class DirectoryError(Exception):
    """The directory cannot be used now; the message is for the operator."""


class ForeignDirectoryError(DirectoryError):
    """The directory has no marker, or that of another database."""


class FileLostError(Exception):
    """The file of a document is not in the directory, or is not the one that was stored."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where the file of a document is."""

    platform_id: Id
    document_id: Id
    file_id: Id


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in the directory, with the SHA-256 of what is in it."""

    place: FilePlace
    digest: bytes


@dataclass(slots=True)
class StagedFile:
    """A file that a request has stored; until a row names it, the request removes it at its end."""

    file: StoredFile
    is_named: bool = False


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file that is older than any request; `place` is None where no row can name it."""

    path: Path
    place: FilePlace | None


class FileDirectory:
    """A directory with the files of documents. Its functions wait for the disk: use a thread.

    It is written to, and files are removed, only where its marker names `owner`.
    """

    def __init__(self, path: Path, owner: str) -> None:
        """Use `path` for the database that `owner` identifies."""
        self._root: Final = path
        self._owner: Final = owner

    def claim_if_empty(self) -> None:
        """Write the marker into a directory in which nothing is, for a database without documents.

        Raises: DirectoryError.
        """
        try:
            is_empty = {each.name for each in self._root.iterdir()} <= _OF_A_VOLUME
            if is_empty:
                _write(self._root / MARKER, f"{self._owner}\n".encode())
        except OSError as error:
            raise _unusable(error) from error

    def require_own(self) -> None:
        """Check that the marker is there and names the database.

        Raises: ForeignDirectoryError; DirectoryError.
        """
        try:
            self._root.stat()
            with (self._root / MARKER).open("rb") as opened:
                found = opened.read(_MARKER_LIMIT).decode(errors="replace").strip()
        except OSError as error:
            if not isinstance(error, FileNotFoundError) or not self._root.is_dir():
                raise _unusable(error) from error
            message = (
                f"the directory of documents has no {MARKER}: its volume is not mounted, or it has"
                " not been taken into use (cardledger doctor)"
            )
            raise ForeignDirectoryError(message) from None
        if found != self._owner:
            message = f"the directory of documents is of the database {found}, not {self._owner}"
            raise ForeignDirectoryError(f"{message} (cardledger doctor)")

    def write(self, platform_id: Id, document_id: Id, sealed: bytes) -> StoredFile:
        """Store an encrypted file; on the return it survives a crash of the machine.

        Raises: DirectoryError, after which nothing is stored.
        """
        place = FilePlace(platform_id, document_id, new_id())
        target = self._path(place)
        self.require_own()
        try:
            for folder in (target.parent.parent, target.parent):
                _make_folder(folder)
            _write(target, sealed)
        except OSError as error:
            raise _unusable(error) from error
        return StoredFile(place, sha256(sealed).digest())

    def read(self, file: StoredFile) -> bytes:
        """Return what is in `file`, encrypted.

        Raises: FileLostError; DirectoryError.
        """
        try:
            descriptor = os.open(self._path(file.place), os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "rb") as opened:
                sealed = opened.read(_READ_LIMIT)
        except FileNotFoundError:
            raise FileLostError("the file is not in the directory of documents") from None
        except OSError as error:
            raise _unusable(error) from error
        if sha256(sealed).digest() != file.digest:
            raise FileLostError("the file is not the one that was stored: its digest differs")
        return sealed

    def has(self, place: FilePlace) -> bool:
        """Return whether the file of a document is there.

        Raises: DirectoryError where that cannot be known.
        """
        try:
            return stat.S_ISREG(self._path(place).lstat().st_mode)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _unusable(error) from error

    def remove(self, places: Iterable[FilePlace]) -> None:
        """Remove files that no row names any more; what fails is removed as left over later.

        Raises: DirectoryError, after which nothing is removed.
        """
        self.remove_paths([self._path(place) for place in places])

    def remove_paths(self, paths: Iterable[Path]) -> None:
        """Do as `remove` does, by the paths of `old_files`.

        Raises: DirectoryError.
        """
        self.require_own()
        _remove_paths(paths)

    def remove_old_probes(self, *, at: datetime) -> None:
        """Remove what a process that was killed has left of `check`.

        Raises: DirectoryError.
        """
        self.require_own()
        before = (at - LEFT_AFTER).timestamp()
        try:
            with os.scandir(self._root) as entries:
                found = [each for each in entries if _PROBE.fullmatch(each.name)]
                _remove_paths(Path(each.path) for each in found if _is_older(each, before))
        except OSError as error:
            raise _unusable(error) from error

    def check(self) -> None:
        """Store and remove a file.

        Raises: ForeignDirectoryError; DirectoryError.
        """
        self.require_own()
        probe = self._root / f".probe-{new_id().hex()}"
        try:
            _write(probe, b"probe")
            probe.unlink()
        except OSError as error:
            raise _unusable(error) from error

    def platforms(self) -> list[Id]:
        """Return the platforms that have files.

        Raises: DirectoryError.
        """
        return [Id.fromhex(name) for name in _names(self._root, _PLATFORM)]

    def old_files(self, platform_id: Id, *, at: datetime) -> Iterator[OldFile]:
        """Yield a platform's files of more than a day, a 24th of them: of each hour another one.

        So every file is looked at once a day, in whatever process. Raises: DirectoryError.
        """
        before = (at - LEFT_AFTER).timestamp()
        slice_of_hour = int(at.timestamp() // 3600) % _SLICES
        folder = self._root / platform_id.hex()
        for name in _names(folder, _FOLDER):
            if int(name, 16) % _SLICES == slice_of_hour:
                yield from _old_in(folder / name, platform_id, before)

    def _path(self, place: FilePlace) -> Path:
        document = place.document_id.hex()
        # The end of an id is random, so the folders of a platform are of one size.
        name = f"{document}-{place.file_id.hex()}"
        return self._root / place.platform_id.hex() / document[-2:] / name


def _remove_paths(paths: Iterable[Path]) -> None:
    """Remove files; what fails is left over, and tried again the next day."""
    for path in paths:
        with suppress(OSError):
            path.unlink()


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=_FOLDER_MODE)
    except FileExistsError:
        return
    _sync_folder(folder.parent)


def _write(target: Path, content: bytes) -> None:
    """Write a file that is there as a whole or not at all, also after a crash.

    Raises: OSError.
    """
    temporary = target.with_name(target.name + _TEMPORARY)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(temporary, flags, _FILE_MODE), "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        temporary.rename(target)
        _sync_folder(target.parent)
    except OSError:
        _remove_paths([temporary, target])
        raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _names(folder: Path, pattern: re.Pattern[str]) -> list[str]:
    try:
        return sorted(each.name for each in folder.iterdir() if pattern.fullmatch(each.name))
    except OSError as error:
        raise _unusable(error) from error


def _old_in(folder: Path, platform_id: Id, before: float) -> Iterator[OldFile]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = _NAME.fullmatch(entry.name.removesuffix(_TEMPORARY))
                if name is None or not _is_older(entry, before):
                    continue
                place = FilePlace(platform_id, Id.fromhex(name[1]), Id.fromhex(name[2]))
                is_whole = not entry.name.endswith(_TEMPORARY)
                yield OldFile(Path(entry.path), place if is_whole else None)
    except OSError as error:
        raise _unusable(error) from error


def _is_older(entry: os.DirEntry[str], before: float) -> bool:
    try:
        return entry.stat(follow_symlinks=False).st_mtime < before
    except FileNotFoundError:
        return False  # Another process has removed it.


def _unusable(error: OSError) -> DirectoryError:
    return DirectoryError(f"the directory of documents cannot be used: {error.strerror or error}")
