"""`cardledger.webhooks.verify`: which webhooks a receiver accepts."""

import base64
import hmac
import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from cardledger.ledger.webhooks import signatures
from cardledger.webhooks.verification import Reason, WebhookVerificationError, verify

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
WEBHOOK_ID = "Webhook:019542f5-b3e7-7d02-0000-0000000000a7"
CONTENT: dict[str, Any] = {"id": WEBHOOK_ID, "type": "TEST", "symbol": "€", "data": {}}
BODY = json.dumps(CONTENT, ensure_ascii=False, separators=(",", ":")).encode()

PRIVATE_DER, PUBLIC_PEM = signatures.new_signing_key()
PRIVATE_KEY = signatures.load_private_key(PRIVATE_DER)
OTHER_PEM = signatures.new_signing_key()[1]
SECRET = signatures.new_webhook_secret()
OTHER_SECRET = signatures.new_webhook_secret()


def signed(body: bytes = BODY, at: datetime = NOW, secret: str = SECRET) -> dict[str, str]:
    return signatures.sign(
        body, webhook_id=WEBHOOK_ID, at=at, private_key=PRIVATE_KEY, secret=secret
    )


def reason(body: bytes, headers: dict[str, str], **keys: Any) -> Reason:  # noqa: ANN401
    with pytest.raises(WebhookVerificationError) as caught:
        verify(body, headers, now=keys.pop("now", NOW), **keys)
    assert str(caught.value)
    return caught.value.reason


# --- what is accepted ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        {"secret": SECRET},
        {"secret": SECRET.removeprefix("whsec_")},
        {"secret": [OTHER_SECRET, SECRET]},
        {"public_key": PUBLIC_PEM},
        {"public_key": (OTHER_PEM, PUBLIC_PEM)},
        {"secret": SECRET, "public_key": PUBLIC_PEM},
        {"secret": [SECRET, OTHER_SECRET], "public_key": [PUBLIC_PEM, OTHER_PEM]},
    ],
)
def test_what_we_sign_is_accepted_and_parsed(keys: dict[str, Any]) -> None:
    assert verify(BODY, signed(), now=NOW, **keys) == CONTENT


@pytest.mark.parametrize("change", [str.lower, str.upper, str.title])
def test_header_names_are_case_insensitive(change: Any) -> None:  # noqa: ANN401
    headers = {change(name): value for name, value in signed().items()}

    assert verify(BODY, headers, secret=SECRET, public_key=PUBLIC_PEM, now=NOW) == CONTENT


def test_any_buffer_of_bytes_is_a_body() -> None:
    for body in (bytearray(BODY), memoryview(BODY)):
        assert verify(body, signed(), secret=SECRET, now=NOW) == CONTENT  # type: ignore[arg-type]


def test_the_default_clock_is_the_system_clock() -> None:
    assert verify(BODY, signed(at=datetime.now(UTC)), secret=SECRET) == CONTENT
    with pytest.raises(WebhookVerificationError):
        verify(BODY, signed(at=datetime.now(UTC) - timedelta(minutes=6)), secret=SECRET)


def test_during_a_rotation_one_of_several_signatures_is_enough() -> None:
    old, new = signed(secret=SECRET), signed(secret=OTHER_SECRET)
    both = old | {
        "webhook-signature": f"v1a,other {new['webhook-signature']} {old['webhook-signature']}"
    }

    assert verify(BODY, both, secret=SECRET, now=NOW) == CONTENT
    assert verify(BODY, both, secret=OTHER_SECRET, now=NOW) == CONTENT
    assert reason(BODY, both, secret=signatures.new_webhook_secret()) is Reason.WRONG_SIGNATURE


# --- what is not --------------------------------------------------------------------------------


def test_without_a_key_nothing_is_accepted() -> None:
    assert reason(BODY, signed()) is Reason.NO_KEY


@pytest.mark.parametrize(
    "keys",
    [
        {"secret": ""},
        {"secret": "whsec_"},
        {"secret": "whsec_c2hvcnQ="},
        {"secret": "not base64 at all, and long enough"},
        {"secret": []},
        {"secret": [SECRET, ""]},
        {"public_key": ""},
        {"public_key": []},
        {"public_key": "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"},
        {"public_key": SECRET},
        {"secret": SECRET, "public_key": ""},
        {"secret": "", "public_key": PUBLIC_PEM},
        {"secret": [], "public_key": PUBLIC_PEM},
    ],
)
def test_an_invalid_key_accepts_nothing(keys: dict[str, Any]) -> None:
    assert reason(BODY, signed(), **keys) is Reason.NO_KEY


def test_an_empty_secret_is_rejected() -> None:
    mac = hmac.digest(b"", f"{WEBHOOK_ID}.{int(NOW.timestamp())}.".encode() + BODY, sha256)
    forged = signed() | {"webhook-signature": f"v1,{base64.b64encode(mac).decode()}"}

    assert reason(BODY, forged, secret="") is Reason.NO_KEY


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP384R1()).public_key(),
        ec.generate_private_key(ec.SECP256K1()).public_key(),
        ed25519.Ed25519PrivateKey.generate().public_key(),
    ],
)
def test_a_public_key_of_another_kind_is_refused(key: Any) -> None:  # noqa: ANN401
    pem = key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    ).decode()

    assert reason(BODY, signed(), public_key=pem) is Reason.NO_KEY


@pytest.mark.parametrize(
    ("keys", "broken"),
    [
        ({"secret": OTHER_SECRET, "public_key": PUBLIC_PEM}, "webhook-signature"),
        ({"secret": SECRET, "public_key": OTHER_PEM}, "x-grid-signature"),
    ],
)
def test_with_both_keys_both_signatures_must_verify(keys: dict[str, Any], broken: str) -> None:
    with pytest.raises(WebhookVerificationError, match=broken) as caught:
        verify(BODY, signed(), now=NOW, **keys)

    assert caught.value.reason is Reason.WRONG_SIGNATURE


@pytest.mark.parametrize("name", list(signed()))
@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_header_is_named_in_the_error(name: str, value: str | None) -> None:
    headers = signed()
    if value is None:
        del headers[name]
    else:
        headers[name] = value

    with pytest.raises(WebhookVerificationError, match=name.lower()) as caught:
        verify(BODY, headers, secret=SECRET, public_key=PUBLIC_PEM, now=NOW)

    assert caught.value.reason is Reason.MISSING_HEADER


def test_a_header_with_two_values_is_refused() -> None:
    headers = signed() | {"Webhook-Id": "Webhook:another"}

    assert reason(BODY, headers, secret=SECRET) is Reason.MISSING_HEADER


@pytest.mark.parametrize(
    "value", ["v1", "v1a,abc", "abc", " ", "V1,abc", ",", " ".join(["v1,abc"] * 17)]
)
def test_a_list_without_signatures_of_version_1_is_malformed(value: str) -> None:
    headers = signed() | {"webhook-signature": value}

    assert reason(BODY, headers, secret=SECRET) is Reason.MALFORMED_HEADER


@pytest.mark.parametrize(
    "value", ["now", "-1", "+1", " 1", "1_000", "1.0", "1e9", "\u0661", "9" * 5000, "1" * 13]
)
def test_a_timestamp_must_be_decimal_seconds(value: str) -> None:
    headers = signed() | {"webhook-timestamp": value}

    assert reason(BODY, headers, secret=SECRET) is Reason.MALFORMED_HEADER


@pytest.mark.parametrize(
    "value",
    [
        "{}",
        "[]",
        "null",
        "1",
        '"v1"',
        "MEUCIQ==",
        '{"v":"2","s":"MEUCIQ=="}',
        '{"v":1,"s":"MEUCIQ=="}',
        '{"v":"1","s":5}',
        '{"v":"1","s":""}',
        '{"v":"1","s":"*"}',
        '{"v":"1"}',
        "[" * 100_000,
    ],
)
def test_a_grid_signature_must_have_its_canonical_form(value: str) -> None:
    headers = signed() | {"X-Grid-Signature": value}

    assert reason(BODY, headers, public_key=PUBLIC_PEM) is Reason.MALFORMED_HEADER


def test_a_webhook_that_is_too_old_or_too_new_is_refused() -> None:
    headers = signed()
    for allowed in (timedelta(minutes=5), timedelta(minutes=-5)):
        assert verify(BODY, headers, secret=SECRET, now=NOW + allowed) == CONTENT

    too_late, too_early = NOW + timedelta(seconds=301), NOW - timedelta(seconds=301)

    assert reason(BODY, headers, secret=SECRET, now=too_late) is Reason.TOO_OLD
    assert reason(BODY, headers, secret=SECRET, now=too_early) is Reason.TOO_NEW
    longer = timedelta(minutes=6)
    assert verify(BODY, headers, secret=SECRET, now=too_late, tolerance=longer) == CONTENT


def test_a_forged_webhook_does_not_reveal_the_clock() -> None:
    old = signed(at=NOW - timedelta(days=1), secret=OTHER_SECRET)

    assert reason(BODY, old, secret=SECRET) is Reason.WRONG_SIGNATURE


@pytest.mark.parametrize("body", [b"", b"[]", b'"x"', b"{", b"\xff", b"null", b"[" * 100_000])
def test_a_signed_body_that_is_not_an_object_is_refused(body: bytes) -> None:
    headers = signed(body)

    assert reason(body, headers, secret=SECRET, public_key=PUBLIC_PEM) is Reason.NOT_JSON


def test_a_decoded_body_raises_type_error() -> None:
    with pytest.raises(TypeError, match="bytes"):
        verify(BODY.decode(), signed(), secret=SECRET)  # type: ignore[arg-type]


# --- one bit ------------------------------------------------------------------------------------

HEADERS = signed()
bits = st.integers(min_value=0, max_value=7)


def flipped(data: bytes, index: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[index] ^= 1 << bit
    return bytes(changed)


@given(st.integers(min_value=0, max_value=len(BODY) - 1), bits)
def test_a_flipped_bit_of_the_body_is_refused_by_either_scheme(index: int, bit: int) -> None:
    body = flipped(BODY, index, bit)

    assert reason(body, HEADERS, secret=SECRET) is Reason.WRONG_SIGNATURE
    assert reason(body, HEADERS, public_key=PUBLIC_PEM) is Reason.WRONG_SIGNATURE


@given(st.data(), st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature"]), bits)
def test_a_flipped_bit_of_a_standard_header_is_refused(
    data: st.DataObject, name: str, bit: int
) -> None:
    value = HEADERS[name].encode()
    index = data.draw(st.integers(min_value=0, max_value=len(value) - 1))
    headers = HEADERS | {name: flipped(value, index, bit).decode("latin-1")}

    # However large the tolerance: the time is signed too.
    with pytest.raises(WebhookVerificationError):
        verify(BODY, headers, secret=SECRET, now=NOW, tolerance=timedelta(days=10**6))


@given(st.integers(min_value=0, max_value=len(HEADERS["X-Grid-Signature"]) - 1), bits)
def test_a_flipped_bit_of_the_grid_signature_is_refused(index: int, bit: int) -> None:
    value = flipped(HEADERS["X-Grid-Signature"].encode(), index, bit).decode("latin-1")

    with pytest.raises(WebhookVerificationError):
        verify(BODY, HEADERS | {"X-Grid-Signature": value}, public_key=PUBLIC_PEM, now=NOW)


@given(st.binary(), st.dictionaries(st.sampled_from(list(HEADERS)), st.text()))
def test_random_input_is_neither_accepted_nor_raises_another_error(
    body: bytes, headers: dict[str, str]
) -> None:
    for keys in ({"secret": SECRET}, {"public_key": PUBLIC_PEM}):
        assert reason(body, HEADERS | headers if body else headers, **keys)


# --- others -------------------------------------------------------------------------------------


def test_what_standardwebhooks_signs_is_accepted() -> None:
    signature = Webhook(SECRET).sign(WEBHOOK_ID, NOW, BODY.decode())
    headers = {
        "webhook-id": WEBHOOK_ID,
        "webhook-timestamp": str(int(NOW.timestamp())),
        "webhook-signature": signature,
    }

    assert verify(BODY, headers, secret=SECRET, now=NOW) == CONTENT
    assert reason(BODY, headers, secret=OTHER_SECRET) is Reason.WRONG_SIGNATURE


def test_standardwebhooks_accepts_what_we_sign() -> None:
    headers = signed(at=datetime.now(UTC))

    assert Webhook(SECRET).verify(BODY, headers) == verify(BODY, headers, secret=SECRET)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl on this machine")
def test_what_openssl_signs_is_accepted(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    assert openssl is not None

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=tmp_path, capture_output=True, check=True)

    (tmp_path / "body").write_bytes(BODY)
    run("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "key.pem")
    run("ec", "-in", "key.pem", "-pubout", "-out", "public.pem")
    run("dgst", "-sha256", "-sign", "key.pem", "-out", "signature", "body")
    signature = base64.b64encode((tmp_path / "signature").read_bytes()).decode()
    public_key = (tmp_path / "public.pem").read_text()
    headers = {"x-grid-signature": json.dumps({"v": "1", "s": signature})}

    assert verify(BODY, headers, public_key=public_key) == CONTENT
    assert reason(BODY + b" ", headers, public_key=public_key) is Reason.WRONG_SIGNATURE


def test_with_a_secret_only_the_standard_library_is_imported() -> None:
    headers = signed(at=datetime.now(UTC))
    code = (
        "import sys; before = set(sys.modules); from cardledger.webhooks import verify;"
        f"verify({BODY!r}, {headers!r}, secret={SECRET!r});"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(new - sys.stdlib_module_names))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)

    assert done.stdout == "['cardledger']\n"


def test_with_a_public_key_only_cryptography_is_imported() -> None:
    code = (
        "import sys; from cardledger.webhooks import verify;"
        f"verify({BODY!r}, {signed()!r}, public_key={PUBLIC_PEM!r});"
        "print({'ledger', 'schema', 'sqlalchemy', 'fastapi', 'pydantic'} & set(sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)

    assert done.stdout == "set()\n"
