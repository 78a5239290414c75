"""What a process imports at its start: a package that it does not use delays every start."""

import subprocess
import sys

import pytest

_UP = "from cardledger.commands import up"
_WORKER = """
from cardledger.supervisor import processes
from cardledger.workers.process import main
from cardledger.workers.signals.roles import WorkerRole
main.load(WorkerRole.{})
"""
_EVENTS, _WEBHOOKS = _WORKER.format("EVENTS"), _WORKER.format("WEBHOOKS")
_API = """
from cardledger.supervisor import processes
from cardledger.api import app
from cardledger.api.connections import server
"""

_HTTP = {"fastapi", "starlette", "uvicorn", "jinja2", "fido2"}
_FILES = {"xlsxwriter", "pyarrow", "mt940"}
_MIGRATIONS = {"alembic", "mako"}
_CUSTOMERS = {"email_validator", "stdnum", "cardledger.schema.wire.customers.external_accounts"}
_DECISIONS = {"cardledger.ledger.engine", "cardledger.ledger.sandbox", "cardledger.ledger.quotes"}
_BY_PROCESS = {
    "up": (_UP, _HTTP | _FILES | _CUSTOMERS | _DECISIONS | {"dramatiq", "urllib3"}),
    "worker --only events": (
        _EVENTS,
        _HTTP
        | _FILES
        | _MIGRATIONS
        | _CUSTOMERS
        | {"urllib3", "prometheus_client", "cardledger.workers.webhooks"},
    ),
    "worker --only webhooks": (
        _WEBHOOKS,
        _HTTP | _FILES | _MIGRATIONS | _CUSTOMERS | _DECISIONS | {"prometheus_client"},
    ),
    "api": (_API, _FILES | _MIGRATIONS | {"urllib3", "cardledger.api.openapi.document"}),
}
"""The imports of each process, and packages that it does not use."""


@pytest.mark.parametrize("process", _BY_PROCESS)
def test_a_process_imports_no_package_that_it_does_not_use(process: str) -> None:
    imports, needless = _BY_PROCESS[process]
    code = f"import sys\n{imports}\nprint(*sorted({needless!r} & sys.modules.keys()))"

    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert finished.stdout.split() == []
