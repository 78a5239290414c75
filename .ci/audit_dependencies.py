"""Compare the locked dependencies with an export of security advisories; no network is used.

    ADVISORY_EXPORT=advisories.json python .ci/audit_dependencies.py constraints.txt …

The file is JSON: advisories in the format of OSV (https://ossf.github.io/osv-schema/), one or a
list or under "vulns"; or the report of `pip-audit --format json`. Exits with 1 when a lock is
affected, with 2 when the file cannot be understood, and with 0 otherwise; without a file it says
that nothing was audited.
"""

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

VARIABLE: Final = "ADVISORY_EXPORT"
_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
_IN_RANGE_TYPES: Final = frozenset({"ECOSYSTEM", "SEMVER"})

Pins = dict[str, set[str]]
"""The locked versions of each package: the locks may differ."""


def main(locks: Sequence[str]) -> int:
    """Print what is affected, and return the exit code."""
    export = os.environ.get(VARIABLE)
    if not export:
        print(f"no advisory export: dependencies NOT audited ({VARIABLE} names a JSON file)")
        return 0
    pins = _pins(Path(lock).read_text(encoding="utf-8") for lock in locks)
    try:
        known = json.loads(Path(export).read_text(encoding="utf-8"))
        found = sorted(set(_affected(known, pins)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"{VARIABLE}={export} is not an export of OSV or pip-audit: {error!r}")
        return 2
    for line in found:
        print(line)
    print(f"{len(pins)} locked packages audited with {export}: {len(found)} findings")
    return 1 if found else 0


def _pins(locks: Iterator[str]) -> Pins:
    pins: Pins = {}
    for lock in locks:
        for name, version in _PIN.findall(lock):
            pins.setdefault(canonicalize_name(name), set()).add(version)
    return pins


def _affected(known: Any, pins: Pins) -> Iterator[str]:  # noqa: ANN401 - JSON of others
    if isinstance(known, dict) and "dependencies" in known:
        return _reported(known["dependencies"], pins)
    return _advised(known.get("vulns", [known]) if isinstance(known, dict) else known, pins)


def _reported(packages: Sequence[dict[str, Any]], pins: Pins) -> Iterator[str]:
    """Yield the findings of a report of pip-audit."""
    for package in packages:
        # A package that pip-audit skipped has a reason and no version.
        if package.get("version") in pins.get(canonicalize_name(package["name"]), ()):
            for advisory in package["vulns"]:
                yield _line(package["name"], package["version"], advisory["id"])


def _advised(advisories: Sequence[dict[str, Any]], pins: Pins) -> Iterator[str]:
    """Yield what advisories of OSV say of the locked versions."""
    for advisory in advisories:
        identifier, affected = advisory["id"], advisory.get("affected", [])
        for entry in [] if advisory.get("withdrawn") else affected:
            package = entry.get("package", {})
            name = package["name"] if package.get("ecosystem") == "PyPI" else ""
            for version in pins.get(canonicalize_name(name), ()):
                if _is_affected(version, entry):
                    yield _line(name, version, identifier)


def _is_affected(version: str, entry: dict[str, Any]) -> bool:
    """Say whether `version` is listed or in a range, as OSV defines it."""
    if version in entry.get("versions", ()):
        return True
    ranges = [each for each in entry.get("ranges", ()) if each["type"] in _IN_RANGE_TYPES]
    return any(_is_within(Version(version), each["events"]) for each in ranges)


def _is_within(version: Version, events: Sequence[dict[str, str]]) -> bool:
    is_within = False
    for event in sorted(events, key=_place):
        [(kind, value)] = event.items()
        place = Version(value)
        if kind == "introduced" and version >= place:
            is_within = True
        if (kind == "fixed" and version >= place) or (kind == "last_affected" and version > place):
            is_within = False
    return is_within


def _place(event: dict[str, str]) -> Version:
    [value] = event.values()
    try:
        return Version(value)
    except InvalidVersion as error:
        raise ValueError(str(error)) from None


def _line(name: str, version: str, identifier: str) -> str:
    return f"{canonicalize_name(name)} {version}: {identifier}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
