"""A settlement file of the canonical form or of a profile, opened to be read."""

from typing import BinaryIO

from cardledger.ledger.network_files import profiled_rows
from cardledger.ledger.network_files.profile import Profile
from cardledger.ledger.network_files.settlement_file import SettlementFile, canonical_rows


def read(file: BinaryIO, profile: Profile | None = None) -> SettlementFile:
    """Return the file after its header record; iterate it to read and check the rest.

    Raises: RefusedError.
    """
    if profile is None:
        return SettlementFile(canonical_rows(file))
    return SettlementFile(
        profiled_rows.rows(file, profile), states_interchange="interchange" in profile.totals
    )
