"""The amount of a payment, which has an error code of its own."""

from cardledger.api.http.errors import invalid_field
from cardledger.schema.wire.common import MAX_AMOUNT
from cardledger.schema.wire.errors import Code


def required_amount(amount: int | None) -> int:
    """Return `amount`, in minor units.

    Raises: ApiError INVALID_AMOUNT when it is missing, not positive or above 64 bits.
    """
    if amount is None:
        raise invalid_field("amount", "is required", Code.INVALID_AMOUNT)
    if not 0 < amount <= MAX_AMOUNT:
        message = f"must be from 1 to {MAX_AMOUNT}"
        raise invalid_field("amount", message, Code.INVALID_AMOUNT)
    return amount
