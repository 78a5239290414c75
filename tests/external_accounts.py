"""A valid example of each variant, and invalid values for each of its fields.

Written by hand from the interface's table, so that an error in `VARIANTS` is detected. The
last three characters of the identifiers have no meaning in the sandbox.
"""

from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

Wrong = dict[str, list[Any]]

ADDRESS: Final = {"line1": "1 Main St", "postalCode": "10001", "country": "US"}
PERSON: Final = {
    "beneficiaryType": "INDIVIDUAL",
    "fullName": "Ada Lovelace",
    "birthDate": "1990-12-10",
    "nationality": "GB",
    "countryOfResidence": "GB",
    "email": "ada@example.com",
    "phoneNumber": "+447700900123",
    "address": ADDRESS,
}
COMPANY: Final = {
    "beneficiaryType": "BUSINESS",
    "legalName": "Engines Ltd",
    "registrationNumber": "123",
    "taxId": "456",
    "email": "office@example.com",
    "phoneNumber": "+447700900123",
    "countryOfResidence": "GB",
    "address": ADDRESS,
}


@dataclass(frozen=True)
class Example:
    """Fields of a valid account, invalid values by field, and the optional fields."""

    fields: dict[str, str]
    wrong: Wrong
    optional: set[str] = field(default_factory=set)
    rails: str = "BANK_TRANSFER"
    beneficiary: dict[str, Any] | None = field(default_factory=lambda: PERSON)
    currency: str = ""


LONG: Final = "x" * 256
BANK: Final = {"bankName": "First Bank"}
NUMBER: Final = {"accountNumber": "1234567890"}
MOBILE: Final = {"phoneNumber": "+26771234567", "provider": "MTN"}
BAD_BANK: Wrong = {"bankName": ["", LONG, 1]}
BAD_NUMBER: Wrong = {"accountNumber": ["", "1" * 35, 1]}
BAD_BIC: Wrong = {"swiftCode": ["HSBC", "hsbchkhh", "HSBCHKHHX", "1SBCHKHH"]}
BAD_PHONE: Wrong = {"phoneNumber": ["26771234567", "+12345", "+123456789012345", "+1x3456789"]}
BAD_BRANCH: Wrong = {"branchCode": ["1234", "123456", "1234a"]}
BAD_KIND: Wrong = {"bankAccountType": ["checking", "CURRENT", ""]}
BAD_MOBILE: Wrong = BAD_PHONE | {"provider": ["", LONG]}
BOTH: Final = "BANK_TRANSFER MOBILE_MONEY"


def mobile(currency: str, phone: str = "+26771234567", **more: tuple[str, list[Any]]) -> Example:
    return Example(
        {
            "phoneNumber": phone,
            "provider": "MTN",
            **{name: good for name, (good, _) in more.items()},
        },
        BAD_MOBILE | {name: bad for name, (_, bad) in more.items()},
        rails="MOBILE_MONEY",
        currency=currency,
    )


def swift_code(bic: str, rails: str = "BANK_TRANSFER", optional: str = "") -> Example:
    return Example(
        BANK | NUMBER | {"swiftCode": bic},
        BAD_BANK | BAD_NUMBER | BAD_BIC,
        optional=set(optional.split()),
        rails=rails,
    )


def wallet(address: str, *wrong: str) -> Example:
    wrong_addresses: list[Any] = ["", 1, "x" * 129, *wrong]
    return Example(
        {"address": address},
        {"address": wrong_addresses},
        rails="",
        beneficiary=None,
        currency="USDC",
    )


EVM: Final = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"

EXAMPLES: Final[dict[str, Example]] = {
    "AED_ACCOUNT": Example(
        {"iban": "AE070331234567890123456", "swiftCode": "EBILAEAD"},
        {"iban": ["AE07033123456789012345", "DE89370400440532013000", "AE07033123456789012345X"]}
        | BAD_BIC,
        {"swiftCode"},
    ),
    "BDT_ACCOUNT": Example(
        NUMBER
        | BANK
        | {"branchCode": "12345", "swiftCode": "DBBLBDDH", "phoneNumber": "+8801712345678"},
        BAD_NUMBER | BAD_BANK | BAD_BRANCH | BAD_BIC | BAD_PHONE,
        {"accountNumber", "branchCode", "swiftCode", "phoneNumber"},
        BOTH,
    ),
    "BRL_ACCOUNT": Example(
        {"pixKey": "ada@example.com", "pixKeyType": "EMAIL", "taxId": "12345678909"},
        {
            "pixKey": ["", "x" * 78],
            "pixKeyType": ["email", ""],
            "taxId": ["1" * 10, "1" * 15, "x" * 11],
        },
        rails="PIX",
    ),
    "BWP_ACCOUNT": mobile("BWP"),
    "CAD_ACCOUNT": Example(
        {"bankCode": "001", "branchCode": "12345", "accountNumber": "1234567"},
        {"bankCode": ["1", "0001", "00x"], "accountNumber": ["123456", "1" * 13, "123456x"]}
        | BAD_BRANCH,
    ),
    "CNY_ACCOUNT": Example(
        NUMBER | BANK | {"phoneNumber": "+8613812345678"},
        BAD_NUMBER | BAD_BANK | BAD_PHONE,
        {"phoneNumber"},  # And accountNumber, for AliPay and WechatPay only.
        BOTH,
        COMPANY,
    ),
    "COP_ACCOUNT": Example(
        NUMBER | BANK | {"bankAccountType": "SAVINGS", "phoneNumber": "+573001234567"},
        BAD_NUMBER | BAD_BANK | BAD_KIND | BAD_PHONE,
        {"accountNumber", "bankAccountType", "phoneNumber"},
        BOTH,
    ),
    "DKK_ACCOUNT": Example(
        {"iban": "DK5000400440116243", "swiftCode": "DABADKKK"},
        {"iban": ["DK500040044011624", "AE070331234567890123456", "DK500040044011624X"]} | BAD_BIC,
        {"swiftCode"},
        "SEPA SEPA_INSTANT",
    ),
    "EGP_ACCOUNT": Example(
        BANK | {"iban": "EG380019000500000000263180002", "phoneNumber": "+201001234567"},
        {"iban": ["EG38001900050000000026318000", "EG38001900050000000026318000X"]}
        | BAD_BANK
        | BAD_PHONE,
        {"iban", "phoneNumber"},
        BOTH,
    ),
    "EUR_ACCOUNT": Example(
        {"iban": "DE89370400440532013000", "swiftCode": "DEUTDEFF"},
        {"iban": ["DE8937040044", "de89370400440532013000", "DE89 3704 0044 0532 0130 00"]}
        | BAD_BIC,
        {"swiftCode"},
        "SEPA SEPA_INSTANT",
    ),
    "GBP_ACCOUNT": Example(
        {"sortCode": "200000", "accountNumber": "55779911"},
        {
            "sortCode": ["20-00-00", "20000", "2000000"],
            "accountNumber": ["5577991", "557799111", "5577991x"],
        },
        rails="FASTER_PAYMENTS",
    ),
    "GHS_ACCOUNT": Example(
        NUMBER | BANK | {"phoneNumber": "+233241234567"},
        BAD_NUMBER | BAD_BANK | BAD_PHONE,
        {"accountNumber", "phoneNumber"},
        BOTH,
    ),
    "GTQ_ACCOUNT": Example(
        NUMBER | BANK | {"bankAccountType": "CHECKING"}, BAD_NUMBER | BAD_BANK | BAD_KIND
    ),
    "HKD_ACCOUNT": swift_code("HSBCHKHH"),
    "HTG_ACCOUNT": Example({"phoneNumber": "+50934567890"}, BAD_PHONE, rails="MOBILE_MONEY"),
    "IDR_ACCOUNT": Example(
        NUMBER | BANK | {"swiftCode": "CENAIDJA", "phoneNumber": "+628123456789"},
        BAD_NUMBER
        | BAD_BANK
        | BAD_BIC
        | {"phoneNumber": ["+447700900123", "+62812345", "08123456789"]},
    ),
    "INR_ACCOUNT": Example(
        NUMBER | BANK | {"vpa": "ada@upi", "ifsc": "HDFC0000001", "rail": "NEFT"},
        {"vpa": ["ada", "@b", "ada@u-pi"], "accountNumber": ["12345678", "1" * 19, "12345678x"]}
        | {"ifsc": ["HDFC1000001", "hdfc0000001", "HDFC000001"], "rail": ["IMPS", ""]}
        | BAD_BANK,
        {"vpa", "accountNumber", "ifsc", "rail", "bankName"},
        "UPI NEFT RTGS",
    ),
    "JMD_ACCOUNT": Example(
        NUMBER | BANK | {"branchCode": "12345", "bankAccountType": "SAVINGS"},
        BAD_NUMBER | BAD_BANK | BAD_BRANCH | BAD_KIND,
    ),
    "KES_ACCOUNT": mobile("KES", "+254712345678"),
    "MWK_ACCOUNT": mobile("MWK", "+265991234567"),
    "MXN_ACCOUNT": Example(
        {"clabeNumber": "032180000118359719"},
        {"clabeNumber": ["03218000011835971", "0321800001183597190", "03218000011835971x"]},
        rails="SPEI",
    ),
    "MYR_ACCOUNT": swift_code("MBBEMYKL"),
    "NGN_ACCOUNT": Example(
        NUMBER | BANK, {"accountNumber": ["123456789", "12345678901", "123456789x"]} | BAD_BANK
    ),
    "PHP_ACCOUNT": Example(
        NUMBER | BANK, {"accountNumber": ["1234567", "1" * 17, "1234567x"]} | BAD_BANK
    ),
    "PKR_ACCOUNT": Example(
        NUMBER | BANK | {"iban": "PK36SCBL0000001123456702", "phoneNumber": "+923001234567"},
        BAD_NUMBER
        | BAD_BANK
        | BAD_PHONE
        | {"iban": ["PK36SCBL000000112345670", "PK360000000000112345670X"]},
        {"accountNumber", "iban", "phoneNumber"},
        BOTH,
    ),
    "RWF_ACCOUNT": mobile("RWF", "+250781234567"),
    "SGD_ACCOUNT": swift_code("DBSSSGSG", "PAYNOW FAST BANK_TRANSFER", "bankName"),
    "SLV_ACCOUNT": Example(
        NUMBER | BANK | {"bankAccountType": "SAVINGS", "phoneNumber": "+50370123456"},
        BAD_NUMBER | BAD_BANK | BAD_KIND | BAD_PHONE,
        {"accountNumber", "bankName", "bankAccountType", "phoneNumber"},
        BOTH,
        currency="USD",
    ),
    "THB_ACCOUNT": swift_code("BKKBTHBK"),
    "TZS_ACCOUNT": mobile("TZS", "+255712345678"),
    "UGX_ACCOUNT": mobile("UGX", "+256712345678"),
    "USD_ACCOUNT": Example(
        NUMBER
        | BANK
        | {
            "routingNumber": "021000021",
            "bankAccountType": "CHECKING",
            "intermediaryBankName": "Mid",
        }
        | {"intermediaryRoutingNumber": "011401533", "fiToFiInformation": ""},
        BAD_NUMBER
        | BAD_KIND
        | {"routingNumber": ["02100002", "0210000210", "02100002x"], "bankName": ["", "x" * 141]}
        | {"intermediaryBankName": ["", "x" * 141], "intermediaryRoutingNumber": ["1", "x" * 9]}
        | {"fiToFiInformation": ["x" * 211]},
        {
            "bankName",
            "bankAccountType",
            "intermediaryBankName",
            "intermediaryRoutingNumber",
            "fiToFiInformation",
        },
        "ACH WIRE RTP FEDNOW",
    ),
    "VND_ACCOUNT": swift_code("BFTVVNVX"),
    "XAF_ACCOUNT": mobile("XAF", "+237671234567", region=("CM", ["cm", "SN", ""])),
    "XOF_ACCOUNT": mobile("XOF", "+221771234567", region=("SN", ["sn", "CM", ""])),
    "ZAR_ACCOUNT": Example(
        NUMBER | BANK, {"accountNumber": ["12345678", "1" * 14, "12345678x"]} | BAD_BANK
    ),
    "ZMW_ACCOUNT": mobile("ZMW", "+260971234567"),
    "SWIFT_ACCOUNT": Example(
        NUMBER | BANK | {"country": "JP", "swiftCode": "BOTKJPJT"},
        BAD_NUMBER
        | BAD_BANK
        | BAD_BIC
        | {"country": ["jp", "JPN"], "iban": ["DE8937040044", "de89370400440532013000"]},
        rails="SWIFT",
        currency="JPY",
    ),
    "BASE_WALLET": wallet(EVM),
    "ETHEREUM_WALLET": wallet(EVM),
    "LIGHTNING": Example(
        {"lightningAddress": "ada@example.com"},
        {"lightningAddress": ["", 1, "x" * 321], "invoice": ["", 1], "bolt12": ["", 1]},
        rails="",
        beneficiary=None,
        currency="BTC",
    ),
    "POLYGON_WALLET": wallet(EVM),
    "SOLANA_WALLET": wallet("EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v"),
    "SPARK_WALLET": wallet("spark1pgss9z2gpzrnhztwy8ffs44x67angma38sqewwddhxlsk65t0c5d5576quly2j"),
    "TRON_WALLET": wallet("TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t"),
}


def new_account_number() -> str:
    """Return a number that no other account has, with an ending that the sandbox does not know."""
    return f"{uuid4().int % 10**9:09d}900"


def info(account_type: str, **changes: object) -> dict[str, Any]:
    """Return the example's `accountInfo`; a change to None leaves the field out."""
    example = EXAMPLES[account_type]
    fields: dict[str, Any] = {"accountType": account_type, **example.fields}
    if example.beneficiary is not None:
        fields["beneficiary"] = example.beneficiary
    return {name: value for name, value in (fields | changes).items() if value is not None}


def body(account_type: str, **fields: object) -> dict[str, Any]:
    """Return a request to register the example."""
    currency = EXAMPLES[account_type].currency or account_type.partition("_")[0]
    return {"currency": currency, "accountInfo": info(account_type), **fields}
