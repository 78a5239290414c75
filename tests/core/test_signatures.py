"""Both signatures, verified by independent code: standardwebhooks and openssl."""

import base64
import json
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from cardledger.ledger.webhooks import signatures
from cardledger.ledger.webhooks.signatures import SignatureError

WEBHOOK_ID = "Webhook:019542f5-b3e7-7d02-0000-0000000000a7"
BODY = '{"id":"Webhook:019542f5","symbol":"€","data":{}}'.encode()

PRIVATE_DER, PUBLIC_PEM = signatures.new_signing_key()
PRIVATE_KEY = signatures.load_private_key(PRIVATE_DER)
PUBLIC_KEY = signatures.load_public_key(PUBLIC_PEM)
SECRET = signatures.new_webhook_secret()


def signed(body: bytes = BODY, at: datetime | None = None, secret: str = SECRET) -> dict[str, str]:
    return signatures.sign(
        body,
        webhook_id=WEBHOOK_ID,
        at=at or datetime.now(UTC),
        private_key=PRIVATE_KEY,
        secret=secret,
    )


def verify(body: bytes, headers: dict[str, str], now: datetime | None = None) -> None:
    signatures.verify(
        body, headers, public_key=PUBLIC_KEY, secret=SECRET, now=now or datetime.now(UTC)
    )


def test_a_webhook_has_four_signature_headers() -> None:
    at = datetime(2026, 3, 1, 12, 0, 0, 999_999, tzinfo=UTC)

    headers = signed(at=at)

    assert list(headers) == [
        "X-Grid-Signature",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
    ]
    assert headers["webhook-id"] == WEBHOOK_ID
    assert headers["webhook-timestamp"] == "1772366400"
    assert json.loads(headers["X-Grid-Signature"]).keys() == {"v", "s"}
    assert headers["X-Grid-Signature"].startswith('{"v":"1","s":"')


def test_a_time_in_another_zone_is_the_same_second() -> None:
    at = datetime.fromisoformat("2026-03-01T17:30:00+05:30")

    assert signed(at=at)["webhook-timestamp"] == signed(at=at.astimezone(UTC))["webhook-timestamp"]


def test_standardwebhooks_accepts_our_signature() -> None:
    content = Webhook(SECRET).verify(BODY, signed())

    assert content == json.loads(BODY)


def test_standardwebhooks_rejects_another_secret_and_another_body() -> None:
    headers = signed()

    with pytest.raises(WebhookVerificationError):
        Webhook(signatures.new_webhook_secret()).verify(BODY, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(BODY + b" ", headers)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_accepts_our_signature_and_rejects_another_body(tmp_path: Path) -> None:
    parts = json.loads(signed()["X-Grid-Signature"])
    (tmp_path / "key.pem").write_text(PUBLIC_PEM)
    (tmp_path / "signature").write_bytes(base64.b64decode(parts["s"]))

    assert openssl_verifies(tmp_path, BODY)
    assert not openssl_verifies(tmp_path, BODY.replace(b"data", b"Data"))


def openssl_verifies(directory: Path, body: bytes) -> bool:
    (directory / "body").write_bytes(body)
    openssl = shutil.which("openssl")
    assert openssl is not None
    arguments = ["dgst", "-sha256", "-verify", "key.pem", "-signature", "signature", "body"]
    done = subprocess.run([openssl, *arguments], cwd=directory, capture_output=True, check=False)
    return done.returncode == 0


def test_keys_have_the_documented_formats() -> None:
    assert PUBLIC_PEM.startswith("-----BEGIN PUBLIC KEY-----\n")
    assert PUBLIC_KEY.curve.name == "secp256r1"
    assert PRIVATE_KEY.public_key() == PUBLIC_KEY
    assert SECRET.startswith("whsec_")
    assert len(base64.b64decode(SECRET.removeprefix("whsec_"))) == 32


def test_keys_and_secrets_are_new_every_time() -> None:
    assert signatures.new_signing_key()[1] != PUBLIC_PEM
    assert signatures.new_webhook_secret() != SECRET


def test_a_key_of_another_kind_is_refused() -> None:
    ed25519 = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE="
    pem = f"-----BEGIN PUBLIC KEY-----\n{ed25519}\n-----END PUBLIC KEY-----\n"

    with pytest.raises(TypeError, match="elliptic"):
        signatures.load_public_key(pem)


@given(body=st.binary(max_size=2000))
def test_a_signed_webhook_verifies(body: bytes) -> None:
    verify(body, signed(body))


@given(body=st.binary(min_size=1, max_size=200), data=st.data())
def test_a_change_of_one_bit_is_noticed(body: bytes, data: st.DataObject) -> None:
    headers = signed(body)
    place = data.draw(st.integers(0, len(body) * 8 - 1))
    changed = bytearray(body)
    changed[place // 8] ^= 1 << place % 8

    with pytest.raises(SignatureError, match="X-Grid-Signature"):
        verify(bytes(changed), headers)
    del headers["X-Grid-Signature"]
    headers["X-Grid-Signature"] = signed(bytes(changed))["X-Grid-Signature"]
    with pytest.raises(SignatureError, match="webhook-signature"):
        verify(bytes(changed), headers)


def test_header_names_may_have_any_case() -> None:
    verify(BODY, {name.upper(): value for name, value in signed().items()})


@pytest.mark.parametrize("minutes", [-6, 6])
def test_an_old_or_future_timestamp_is_rejected(minutes: int) -> None:
    now = datetime.now(UTC)

    with pytest.raises(SignatureError, match="more than 5 minutes"):
        verify(BODY, signed(at=now + timedelta(minutes=minutes)), now)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Grid-Signature", ""),
        ("X-Grid-Signature", "[]"),
        ("X-Grid-Signature", "null"),
        ("X-Grid-Signature", '{"v":"2","s":"AAAA"}'),
        ("X-Grid-Signature", '{"v":"1","s":"A"}'),
        ("X-Grid-Signature", '{"v":"1","s":7}'),
        ("X-Grid-Signature", '{"v":"1"}'),
        ("webhook-id", "Webhook:another"),
        ("webhook-timestamp", "now"),
        ("webhook-timestamp", "1" * 500),
        ("webhook-timestamp", "٣"),
        ("webhook-signature", ""),
        ("webhook-signature", "v1"),
        ("webhook-signature", "v1,é"),
        ("webhook-signature", "v1a,AAAA"),
    ],
)
def test_a_changed_header_does_not_verify(name: str, value: str) -> None:
    with pytest.raises(SignatureError):
        verify(BODY, signed() | {name: value})


def test_during_a_rotation_one_of_two_signatures_is_enough() -> None:
    headers = signed()
    other = signed(secret=signatures.new_webhook_secret())["webhook-signature"]
    headers["webhook-signature"] = f"{other} {headers['webhook-signature']}"

    verify(BODY, headers)
