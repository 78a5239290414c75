"""What `cardledger bank` does, and what it prints."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from cardledger.commands.daily.arguments import key_of, printable
from cardledger.commands.network_files.run import (
    failing_with_usage,
    opened,
    refusal,
    refusal_text,
    session,
    show,
)
from cardledger.config.errors import FAILURE, USAGE, CommandError
from cardledger.install import acting, bank_statements, settlement_files
from cardledger.install.bank_statements import RULES, Result
from cardledger.ledger.bank_statements import profile as profiles
from cardledger.ledger.bank_statements import reader
from cardledger.ledger.bank_statements.mt940 import NotInstalledError
from cardledger.ledger.bank_statements.profile import Profile
from cardledger.ledger.bank_statements.statement import Statement
from cardledger.ledger.file_profiles.profile import ProfileError
from cardledger.ledger.network_files.records import RefusedError


def take(  # noqa: PLR0913 - the options of the command
    path: Path,
    *,
    profile: str | None,
    platform: str | None,
    account: str | None,
    statement_id: str | None,
    dry_run: bool,
    as_json: bool,
    data_dir: Path | None,
) -> int:
    """Import the statement at `path`, match it and print the result; return the exit code."""
    by_profile = None if profile is None else _profile(profile)
    with failing_with_usage("bank"), opened(path) as file:

        def statement() -> Statement:
            return reader.read(file, by_profile, account=account, statement_id=statement_id)

        try:
            statement()
        except ValueError as error:
            raise CommandError(f"--{error}", code=USAGE) from None
        try:
            with session(data_dir, may="prepare", is_long=True) as person:
                result = _imported(person, file, statement, platform, keep=not dry_run)
        except RefusedError as error:
            show(refusal(error), refusal_text(path, error), as_json=as_json)
            return USAGE
        except NotInstalledError:
            raise CommandError(
                f"{path}: MT940 needs the library mt-940: pip install 'cardledger[bank]'"
            ) from None
    show(as_document(result), as_text(result), as_json=as_json)
    return FAILURE if result.open_breaks else 0


def rematch(*, as_json: bool, data_dir: Path | None) -> int:
    """Match open lines again and print the statements that have some; return the exit code."""
    with (
        failing_with_usage("bank"),
        session(data_dir, may="prepare", is_long=True) as person,
    ):
        settlement_files.check_right(person)
        results = bank_statements.rematch(person)
    count = sum(result.open_breaks for result in results)
    document = {
        "state": "REMATCHED",
        "statements": [as_document(result) for result in results],
        "openBreaks": count,
    }
    text = "\n".join([*map(as_text, results), f"{len(results)} statements, {count} open breaks"])
    show(document, text, as_json=as_json)
    return FAILURE if count else 0


def _imported(
    person: acting.Session,
    file: BinaryIO,
    statement: Callable[[], Statement],
    platform: str | None,
    *,
    keep: bool,
) -> Result:
    settlement_files.check_right(person)
    try:
        # Before the database transaction: it begins with what the statement is.
        summary = reader.check(file, statement())
        of_platform = (
            settlement_files.platform_of(person)
            if platform is None
            else key_of(platform, "Platform", "--platform")
        )
        return bank_statements.import_statement(
            person, of_platform, summary, statement(), keep=keep
        )
    except RefusedError as error:
        if keep:
            settlement_files.refuse(person, error)
        raise


def _profile(name: str) -> Profile:
    try:
        return profiles.load(name)
    except ProfileError as error:
        raise CommandError(f"--profile {error}", code=USAGE) from None


def as_document(result: Result) -> dict[str, Any]:
    """Return what `--json` prints; amounts are minor units."""
    return {
        "state": result.state,
        "account": result.account,
        "fileId": result.statement_id,
        "currency": result.currency,
        "firstDay": str(result.first_day),
        "lastDay": str(result.last_day),
        "opening": result.opening,
        "closing": result.closing,
        "gap": result.gap,
        "lines": result.lines,
        "matched": result.matched,
        "breaks": [
            {
                "kind": each.kind,
                "currency": each.currency,
                "count": each.count,
                "difference": each.difference,
            }
            for each in result.breaks
        ],
        "proof": [
            {
                "currency": result.currency,
                "ledger": result.proof.ledger,
                "difference": result.proof.difference,
                "file": result.proof.file,
            }
        ],
        "openBreaks": result.open_breaks,
    }


def as_text(result: Result) -> str:
    """Return the result as lines for people; amounts are minor units."""
    matched = ", ".join(f"{result.matched[rule]} by {rule}" for rule in RULES)
    gap = (
        []
        if result.gap is None
        else [f"  gap: the statement before closes {-result.gap:+} from the opening balance"]
    )
    proof, code = result.proof, result.currency
    head = f"{result.state}  {printable(result.account)}  {printable(result.statement_id)}"
    return "\n".join(
        [
            f"{head}  {result.first_day} to {result.last_day}",
            f"  {code}: opening {result.opening}, closing {result.closing}",
            *gap,
            f"  {result.lines} lines: paid {matched}; {result.open_breaks} open breaks",
            *(
                f"  {each.kind:<16}  {each.currency}  {each.count:>7}  difference {each.difference}"
                for each in result.breaks
            ),
            (
                f"  proof {code}: expected {proof.ledger} + differences {proof.difference}"
                f" = statement {proof.file}"
            ),
        ]
    )
