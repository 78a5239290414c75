import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.storage.secrets import KeyRing, SecretsError

KEYS = KeyRing("the key of a server that exists in tests only")
OTHER = KeyRing("another key that is long enough too")

# Made once, by the first release; they are never made anew.
GOLDEN_SEALED = (
    "3bc51fb08826522af4f288a84f04211209ae04c7b46d571c7e2eb3929656a467"
    "a445cc8211dc1cbb311ad9c44479b36398239244d9a073"
)
GOLDEN_HASH = "525c1a4aa1febd02948ebe3979f6a3cdeaf68c656be5cfd3c98063c07bf79d89"


@given(st.binary(max_size=500))
def test_what_was_encrypted_is_decrypted(plain: bytes) -> None:
    assert KEYS.decrypt(KEYS.encrypt(plain)) == plain


def test_the_same_text_is_sealed_differently_every_time() -> None:
    assert KEYS.encrypt(b"secret") != KEYS.encrypt(b"secret")


def test_another_server_key_cannot_decrypt_and_the_message_says_what_to_check() -> None:
    with pytest.raises(SecretsError, match="CARDLEDGER_SECRET_KEY"):
        OTHER.decrypt(KEYS.encrypt(b"secret"))


@given(st.binary(max_size=100))
def test_bytes_that_were_never_encrypted_are_refused(junk: bytes) -> None:
    with pytest.raises(SecretsError):
        KEYS.decrypt(junk)


@given(st.data())
def test_a_changed_byte_is_noticed(data: st.DataObject) -> None:
    sealed = bytearray(KEYS.encrypt(b"secret"))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= data.draw(st.integers(1, 255))

    with pytest.raises(SecretsError):
        KEYS.decrypt(bytes(sealed))


def test_what_earlier_releases_sealed_and_hashed_is_still_understood() -> None:
    sealed = bytes.fromhex(GOLDEN_SEALED)

    assert KEYS.decrypt(sealed) == b"sealed by the first release"
    assert KEYS.hash_secret("client secret").hex() == GOLDEN_HASH


@given(st.text(max_size=100), st.text(max_size=100))
def test_a_hash_verifies_its_own_secret_only(secret: str, other: str) -> None:
    digest = KEYS.hash_secret(secret)

    assert len(digest) == 32
    assert KEYS.verify_secret(secret, digest)
    assert KEYS.verify_secret(other, digest) == (secret == other)
    assert not OTHER.verify_secret(secret, digest)
    assert not KEYS.verify_secret(secret, b"")


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_a_cursor_without_a_valid_signature_is_refused(payload: bytes, other: bytes) -> None:
    tag = KEYS.sign_cursor(payload)

    assert KEYS.verify_cursor(payload, tag)
    assert KEYS.verify_cursor(other, tag) == (payload == other)
    assert not OTHER.verify_cursor(payload, tag)
    assert not KEYS.verify_cursor(payload, tag[:-1])


def test_each_use_has_its_own_key() -> None:
    assert not KEYS.hash_secret("x").startswith(KEYS.sign_cursor(b"x"))


def test_a_short_server_key_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 32 characters"):
        KeyRing("k" * 31)


def test_nothing_of_the_key_shows_when_it_is_printed() -> None:
    assert "server" not in repr(KEYS)
