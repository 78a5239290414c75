from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardledger.ledger.storage.secrets import owned_tokens
from cardledger.ledger.storage.secrets.key_ring import (
    KeyRing,
    Location,
    Purpose,
    SecretsError,
    ServerKey,
)
from cardledger.schema.ids import Id

KEY = "the key of a server that exists in tests only"
OTHER_KEY = "another key that is long enough too"
KEYS, OTHER = KeyRing(KEY), KeyRing(OTHER_KEY)
EARLIER = KeyRing(ServerKey(KEY, binds=False))
"""Writes as releases before schema 0018 did."""

HERE = Location("platforms", "webhook_secret", b"p" * 16, b"r" * 16)

# Made once, by the first release; they are never made anew.
GOLDEN_UNBOUND = (
    "3bc51fb08826522af4f288a84f04211209ae04c7b46d571c7e2eb3929656a467"
    "a445cc8211dc1cbb311ad9c44479b36398239244d9a073"
)
GOLDEN_UNBOUND_HASH = "525c1a4aa1febd02948ebe3979f6a3cdeaf68c656be5cfd3c98063c07bf79d89"
# Made once, by the first release that binds values.
GOLDEN_SEALED = "017a31d2f774a522493cae69b597bc58e678a5d71117e8e53818a99835d5b3ed04ceef451aabfe"
GOLDEN_HASH = "017a31d2f7f9258c46c88694e390b436cc80d836fc501df2c267c55e60c49d5d43edecf575"

IDS = st.binary(min_size=16, max_size=16)
NAMES = st.sampled_from(["platforms", "customers", "secret", "identifier"])
LOCATIONS = st.builds(Location, NAMES, NAMES, IDS, st.binary(max_size=40))
CHANGED_KEYS = st.sampled_from(
    [
        KeyRing(ServerKey(OTHER_KEY, former=(KEY,))),
        KeyRing(ServerKey(OTHER_KEY, former=("a key between the two, of 32 characters", KEY))),
        KeyRing(ServerKey(OTHER_KEY, next=KEY)),
    ]
)


@given(st.binary(max_size=500), LOCATIONS)
def test_what_was_encrypted_is_decrypted(plain: bytes, location: Location) -> None:
    assert KEYS.decrypt(KEYS.encrypt(plain, location), location) == plain


@given(LOCATIONS, LOCATIONS)
def test_a_sealed_value_opens_in_its_own_place_only(place: Location, other: Location) -> None:
    sealed = KEYS.encrypt(b"secret", place)

    if place == other:
        assert KEYS.decrypt(sealed, other) == b"secret"
    else:
        with pytest.raises(SecretsError):
            KEYS.decrypt(sealed, other)


def test_every_part_of_the_place_is_bound() -> None:
    sealed = KEYS.encrypt(b"secret", HERE)
    others = [
        replace(HERE, table="customers"),
        replace(HERE, column="signing_key"),
        replace(HERE, platform_id=b"q" * 16),
        replace(HERE, row=b"s" * 16),
    ]

    for other in others:
        with pytest.raises(SecretsError, match=f"cannot decrypt {other}"):
            KEYS.decrypt(sealed, other)


def test_a_sealed_value_without_its_header_is_not_taken_for_an_unbound_one() -> None:
    sealed = KEYS.encrypt(b"secret", HERE)

    with pytest.raises(SecretsError):
        KEYS.decrypt(sealed[5:], HERE)


def test_the_same_text_is_sealed_differently_every_time() -> None:
    assert KEYS.encrypt(b"secret", HERE) != KEYS.encrypt(b"secret", HERE)


def test_another_server_key_cannot_decrypt_and_the_message_says_what_to_check() -> None:
    with pytest.raises(SecretsError, match="CARDLEDGER_SECRET_KEY"):
        OTHER.decrypt(KEYS.encrypt(b"secret", HERE), HERE)


@given(st.binary(max_size=100))
def test_bytes_that_were_never_encrypted_are_refused(junk: bytes) -> None:
    with pytest.raises(SecretsError):
        KEYS.decrypt(junk, HERE)


@given(st.data())
def test_a_changed_byte_is_noticed(data: st.DataObject) -> None:
    sealed = bytearray(KEYS.encrypt(b"secret", HERE))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= data.draw(st.integers(1, 255))

    with pytest.raises(SecretsError):
        KEYS.decrypt(bytes(sealed), HERE)


def test_what_earlier_releases_sealed_and_hashed_is_still_understood() -> None:
    unbound, digest = bytes.fromhex(GOLDEN_UNBOUND), bytes.fromhex(GOLDEN_UNBOUND_HASH)

    assert KEYS.decrypt(unbound, HERE) == b"sealed by the first release"
    assert KEYS.presented("client secret", Purpose.API_TOKEN, "clid_1").proves(digest)
    assert EARLIER.hash_secret("client secret", Purpose.AGENT) == digest
    assert KEYS.decrypt(bytes.fromhex(GOLDEN_SEALED), HERE) == b"sealed"
    assert KEYS.hash_secret("client secret", Purpose.AGENT, "1").hex() == GOLDEN_HASH


@given(st.binary(max_size=100), LOCATIONS)
def test_while_the_key_rotates_each_process_opens_what_the_other_seals(
    plain: bytes, location: Location
) -> None:
    # Processes are restarted one after the other.
    with_old = KeyRing(ServerKey(KEY, next=OTHER_KEY))
    with_new = KeyRing(ServerKey(OTHER_KEY, former=(KEY,)))

    for writer, reader in ((with_old, with_new), (with_new, with_old)):
        assert reader.decrypt(writer.encrypt(plain, location), location) == plain
        digest = writer.hash_secret("secret", Purpose.AGENT, "1")
        assert reader.presented("secret", Purpose.AGENT, "1").proves(digest)
        assert reader.verify_cursor(plain, writer.sign_cursor(plain))
    assert with_new.card_digest(plain) == with_old.card_digest(plain) == KEYS.card_digest(plain)


@given(LOCATIONS, CHANGED_KEYS)
def test_values_of_each_key_and_release_open_during_a_rotation(
    place: Location, keys: KeyRing
) -> None:
    for sealed in (KEYS.encrypt(b"s", place), EARLIER.encrypt(b"s", place)):
        assert keys.decrypt(sealed, place) == b"s"
        with pytest.raises(SecretsError):
            OTHER.decrypt(sealed, place)


@given(st.text(max_size=100), st.text(max_size=100), st.sampled_from([KEYS, EARLIER]))
def test_a_hash_verifies_its_own_secret_only(secret: str, other: str, writer: KeyRing) -> None:
    digest = writer.hash_secret(secret, Purpose.AGENT, "1")

    assert KEYS.presented(secret, Purpose.AGENT, "1").proves(digest)
    assert KEYS.presented(other, Purpose.AGENT, "1").proves(digest) == (secret == other)
    assert not OTHER.presented(secret, Purpose.AGENT, "1").proves(digest)
    assert not KEYS.presented(secret, Purpose.AGENT, "1").proves(b"")
    assert digest in KEYS.presented(secret, Purpose.AGENT, "1").candidates


@given(st.sampled_from(Purpose), st.sampled_from(Purpose), st.text(), st.text(), st.text())
def test_a_hash_is_bound_to_its_purpose_and_its_client(
    purpose: Purpose, other: Purpose, client: str, other_client: str, secret: str
) -> None:
    digest = KEYS.hash_secret(secret, purpose, client)

    proves = KEYS.presented(secret, other, other_client).proves(digest)

    assert proves == ((purpose, client) == (other, other_client))


def test_client_and_secret_do_not_run_into_each_other() -> None:
    digest = KEYS.hash_secret("bc", Purpose.AGENT, "a")

    assert not KEYS.presented("c", Purpose.AGENT, "ab").proves(digest)


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_a_cursor_without_a_valid_signature_is_refused(payload: bytes, other: bytes) -> None:
    tag = KEYS.sign_cursor(payload)

    assert KEYS.verify_cursor(payload, tag)
    assert KEYS.verify_cursor(other, tag) == (payload == other)
    assert not OTHER.verify_cursor(payload, tag)
    assert not KEYS.verify_cursor(payload, tag[:-1])


def test_each_use_has_its_own_key() -> None:
    assert KEYS.sign_cursor(b"x") not in EARLIER.hash_secret("x", Purpose.AGENT)


@pytest.mark.parametrize(
    "key", ["k" * 31, ServerKey(KEY, former=("k" * 31,)), ServerKey(KEY, next="")]
)
def test_a_short_server_key_is_refused(key: str | ServerKey) -> None:
    with pytest.raises(ValueError, match="at least 32 characters"):
        KeyRing(key)


def test_nothing_of_the_key_shows_when_it_is_printed() -> None:
    assert "server" not in repr(KEYS)
    assert KEY not in repr(ServerKey(KEY))


# --- tokens that name their row -------------------------------------------------------------------


@given(IDS.map(Id))
def test_a_token_names_the_row_that_it_is_for(owner: Id) -> None:
    token = owned_tokens.new(owner)

    assert owned_tokens.owner_in(token) == owner
    assert owned_tokens.new(owner) != token


@given(IDS.map(Id), st.text(min_size=1, max_size=3))
def test_what_is_no_such_token_names_no_row(owner: Id, more: str) -> None:
    token = owned_tokens.new(owner)

    for other in (token + more, more + token, token[:32], token[33:], token[:-1], "\0", "é", ""):
        assert owned_tokens.owner_in(other) is None


@given(IDS.map(Id), IDS.map(Id), st.sampled_from([KEYS, EARLIER]))
def test_the_hash_of_a_token_proves_no_token_with_another_row(
    owner: Id, other: Id, writer: KeyRing
) -> None:
    token = owned_tokens.new(owner)
    renamed = other.hex() + token[32:]

    digest = writer.hash_secret(token, Purpose.KYC_PAGE)

    assert (digest in KEYS.presented(renamed, Purpose.KYC_PAGE).candidates) == (owner == other)
