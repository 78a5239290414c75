"""`cardledger console`: a link to the console of the running system."""

from pathlib import Path

from cardledger.api import BASE_PATH
from cardledger.api.console import ROOT
from cardledger.config import configuration
from cardledger.config.errors import CommandError
from cardledger.install import credentials, ready_file
from cardledger.ledger.storage.secrets.key_ring import KeyRing


def link(data_dir: Path | None) -> str:
    """Return a link that opens the console of the system in `data_dir` once, within a minute.

    Raises: CommandError when no system runs there.
    """
    settings = configuration.load(data_dir=data_dir)
    running = ready_file.find(settings.data_dir)
    if running is None:
        raise CommandError(
            f"no system runs in {settings.data_dir}; start it with `cardledger up`, or name its"
            " --data-dir"
        )
    keys = KeyRing(credentials.needed_key(settings))
    ticket = credentials.console_ticket(running.database_url, keys, running.client_id)
    return f"{running.base_url.removesuffix(BASE_PATH)}{ROOT}?ticket={ticket}"
