"""Templates as Python has compiled them, kept beside their sources like modules of Python.

Compiling one takes some 50 ms of the event loop, at the first page that uses it.
"""

from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from pickle import UnpicklingError
from tempfile import NamedTemporaryFile
from typing import Final

import structlog
from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket
from typing_extensions import override

from cardledger import __version__

_READABLE: Final = 0o644  # For processes of other users, too.

_log = structlog.get_logger()


class CompiledTemplates(BytecodeCache):
    """Keeps each in a file, which counts only for what it was compiled from and with.

    Where the directory cannot be written, each process compiles for itself.
    """

    def __init__(self, templates: Path) -> None:
        """Keep those of the directory `templates`, which are compiled by the modules beside it."""
        self._directory: Final = templates / "__pycache__"
        modules = sorted(templates.parent.glob("*.py"))  # Options, and filters of constants.
        code = b"".join(module.read_bytes() for module in modules)
        self._compiled_with: Final = f"{__version__} {version('jinja2')} {sha256(code).hexdigest()}"

    @override
    def get_bucket(
        self, environment: Environment, name: str, filename: str | None, source: str
    ) -> Bucket:
        compiled_from = f"{self._compiled_with}\n{source}"
        return super().get_bucket(environment, name, filename, compiled_from)

    @override
    def load_bytecode(self, bucket: Bucket) -> None:
        try:
            with self._file(bucket).open("rb") as file:
                bucket.load_bytecode(file)
        except (OSError, EOFError, ValueError, TypeError, UnpicklingError):
            bucket.reset()  # There is none, or not one that was written.

    @override
    def dump_bytecode(self, bucket: Bucket) -> None:
        try:
            self._directory.mkdir(exist_ok=True)
            with NamedTemporaryFile(dir=self._directory, delete=False) as file:
                written = Path(file.name)
                try:
                    bucket.write_bytecode(file)
                    file.close()
                    written.chmod(_READABLE)
                    written.replace(self._file(bucket))
                finally:
                    written.unlink(missing_ok=True)
        except OSError as error:
            _log.debug("compiled template not kept", error=str(error))

    def _file(self, bucket: Bucket) -> Path:
        return self._directory / f"{bucket.key}.jinja"
