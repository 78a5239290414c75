"""The estimate of the fee of a crypto withdrawal."""

from fastapi import Response

from cardledger.api.http.errors import ApiError, invalid_field
from cardledger.api.http.operations import error_responses
from cardledger.api.http.request_context import PlatformCall
from cardledger.api.http.responses import resource_response
from cardledger.api.http.routing import guarded_router, requires
from cardledger.api.routes.customers.internal_accounts import internal_account
from cardledger.api.routes.payments.amounts import required_amount
from cardledger.ledger.customers import withdrawal_fees
from cardledger.ledger.platforms.scopes import Permission
from cardledger.schema.wire.common import format_amount
from cardledger.schema.wire.errors import Code
from cardledger.schema.wire.payments.transfers import WithdrawalFee, WithdrawalFeeRequest

router = guarded_router("Same-Currency Transfers")


@router.post(
    "/crypto/estimate-withdrawal-fee",
    response_model=WithdrawalFee,
    responses=error_responses(Code.INVALID_AMOUNT, Code.INVALID_CURRENCY, Code.REFERENCE_NOT_FOUND),
)
@requires(Permission.VIEW)
async def estimate_withdrawal_fee(body: WithdrawalFeeRequest, call: PlatformCall) -> Response:
    """Estimate the fee of withdrawing a crypto currency to an address; nothing is moved.

    Both fees are charged in the currency that is withdrawn.
    """
    amount = required_amount(body.amount)
    account = await internal_account(call, body.internal_account_id)
    if body.currency != account.balance.currency.code:
        message = f"must be {account.balance.currency.code}, the currency of the account"
        raise invalid_field("currency", message, Code.INVALID_CURRENCY)
    networks = withdrawal_fees.networks_of(body.currency)
    if not networks:
        message = "must be a crypto currency that can be withdrawn"
        raise invalid_field("currency", message, Code.INVALID_CURRENCY)
    fee = withdrawal_fees.estimate(body.currency, body.crypto_network, amount)
    if fee is None:
        message = f"must be a network of {body.currency}: {', '.join(networks)}"
        raise invalid_field("cryptoNetwork", message)
    if not withdrawal_fees.is_address(body.crypto_network, body.destination_address):
        message = f"is not an address of the network {body.crypto_network}"
        raise invalid_field("destinationAddress", message)
    if fee.total >= amount:
        message = (
            f"The fee of {format_amount(fee.total, fee.asset)} would leave nothing of the amount;"
            " raise amount."
        )
        raise ApiError(Code.INVALID_AMOUNT, message, details={"totalFee": fee.total})
    return resource_response(
        WithdrawalFee(
            network_fee=fee.network_fee,
            network_fee_asset=fee.asset,
            application_fee=fee.application_fee,
            total_fee=fee.total,
            net_amount=amount - fee.total,
        )
    )
