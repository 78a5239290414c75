"""The HTTP API of the system that a command is about, with the credentials in its ready file."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cardledger.config import configuration
from cardledger.config.errors import USAGE, CommandError
from cardledger.install import ready_file as running
from cardledger.install.http_client import HttpApi


@contextmanager
def connect(data_dir: Path | None, ready_file: Path | None) -> Iterator[HttpApi]:
    """Yield the API of the system in `data_dir`, or of the one that `ready_file` describes.

    Raises: CommandError when none runs, or the file is not one.
    """
    with HttpApi(*_access(data_dir, ready_file)) as api:
        yield api


def _access(data_dir: Path | None, ready_file: Path | None) -> tuple[str, str, str]:
    if ready_file is not None:
        try:
            ready = json.loads(ready_file.read_text(encoding="utf-8"))
            return ready["baseUrl"], ready["clientId"], ready["clientSecret"]
        except (OSError, ValueError, LookupError, TypeError):
            raise CommandError(
                f"{ready_file} is not a JSON file with baseUrl, clientId and clientSecret",
                code=USAGE,
            ) from None
    settings = configuration.load(data_dir=data_dir, log_level="warning")
    found = running.find(settings.data_dir)
    if found is None:
        raise CommandError(
            f"no system runs in {settings.data_dir}; start it with `cardledger up`, name its"
            " --data-dir or a --ready-file"
        )
    return found.base_url, found.client_id, found.client_secret
