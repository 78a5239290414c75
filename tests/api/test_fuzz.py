"""Generated requests: whatever the document allows, and what it does not, against a real server.

`make fuzz` sends tens of thousands, in every phase of Schemathesis; here it is a small share of
them, the same every time. schemathesis.toml lists what is checked.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from cardledger.api.app import ApiConfig
from tests.api.documents import document
from tests.api.support import Api, Tenant, new_tenant
from tests.api.test_tenants import MAKERS, Platform, platform

EXAMPLES: Final = int(os.environ.get("FUZZ_EXAMPLES", "0"))
"""How many requests an operation gets in the phases that invent them; 0 is the small run."""

SEED: Final = os.environ.get("FUZZ_SEED", "20251013")

FEW: Final = 1
ONES_OF_EACH: Final = 4
LEAST: Final = 10_000
"""Fewer than so many make no large run."""

SAMPLE: Final = ("createToken", "simulateClearing")
"""Operations that get every case of the coverage phase in the small run: hundreds each."""

_ENVIRONMENT: Final = {
    **os.environ,
    "SCHEMATHESIS_HOOKS": "schemathesis_hooks",
    "PYTHONPATH": str(Path(__file__).parent),
}

CHECKED: Final = Path(__file__).with_name("schemathesis.toml")


def resources(platforms: Sequence[Platform]) -> dict[str, list[str]]:
    """Return some ids for every path parameter, so that requests get further than to a 404."""
    in_paths = {name for path in document()["paths"] for name in re.findall(r"{(\w+)}", path)}
    names = [name for name in MAKERS if name in in_paths]
    known = {name: [one.ids[name] for one in platforms] for name in names}
    del known["agentId"][0]  # Who calls as this agent must not be deleted meanwhile.
    return known


def toml(values: Mapping[str, str]) -> str:
    return "\n".join(f"{name} = {json.dumps(value)}" for name, value in values.items())


def configured(directory: Path, caller: Platform, ids: dict[str, list[str]]) -> Path:
    """Return a configuration with credentials, and with path parameters that are mostly known."""
    basic = {
        "username": caller.api.tenant.client_id,
        "password": caller.api.tenant.client_secret,
    }
    lines = [CHECKED.read_text()]
    lines.append(f"[auth.openapi.BasicAuth]\n{toml(basic)}\n")
    lines.append(f"[auth.openapi.AgentAuth]\n{toml({'bearer': caller.bearer})}\n")
    for name, values in ids.items():
        lines.append(f"[dictionaries.{name}]\nvalues = {json.dumps(values)}\n")
    lines.append("[parameters]")
    lines += [f'"path.{name}" = {{dictionary = "{name}", probability = 0.8}}' for name in ids]
    path = directory / "schemathesis.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(root: str, config: Path, *arguments: str) -> dict[str, Any]:
    """Send generated requests and return the report; fails when a check does."""
    report = config.with_name("report.json")
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        f"--config-file={config}",
        "run",
        f"{root}/openapi.json",
        f"--seed={SEED}",
        "--generation-database=none",
        "--warnings=off",
        "--no-color",
        "--report=json",
        f"--report-json-path={report}",
        *arguments,
    ]
    done = subprocess.run(
        command, cwd=config.parent, env=_ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    found: dict[str, Any] = json.loads(report.read_text())
    assert found["complete"]
    assert found["test_cases"]["unique_failures"] == 0
    assert found["operations"]["errored"] == 0
    return found


@pytest.fixture
def tenant(api_config: ApiConfig) -> Tenant:
    return new_tenant(api_config.database_url)


@pytest.fixture
def config(root: str, tenant: Tenant, tmp_path: Path, database_url: str) -> Path:
    with Api(root, tenant) as api:
        made = [platform(api, database_url) for _ in range(ONES_OF_EACH)]
        return configured(tmp_path, made[0], resources(made))


@pytest.mark.skipif(EXAMPLES > 0, reason="the large run has all of it")
def test_generated_requests_find_nothing(root: str, config: Path) -> None:
    everywhere = run(root, config, "--phases=examples,fuzzing,stateful", f"--max-examples={FEW}")
    some = [f"--include-operation-id={name}" for name in SAMPLE]
    thoroughly = run(root, config, "--phases=coverage", *some)

    assert everywhere["operations"]["tested"] == everywhere["operations"]["total"]
    assert thoroughly["operations"]["tested"] == len(SAMPLE)


@pytest.mark.skipif(EXAMPLES == 0, reason="takes minutes: make fuzz")
def test_very_many_generated_requests_find_nothing(root: str, config: Path) -> None:
    found = run(root, config, f"--max-examples={EXAMPLES}")

    count = found["test_cases"]["generated"]
    print(  # noqa: T201 - the figures are what the large run is for
        f"\nSchemathesis {found['schemathesis_version']}, seed {found['seed']}:"
        f" {count:,} requests to {found['operations']['tested']} operations in"
        f" {found['running_time']:.0f} s, phases {', '.join(found['phases'])};"
        f" {found['test_cases']['unique_failures']} failures"
    )
    assert found["operations"]["tested"] == found["operations"]["total"]
    assert count >= LEAST
