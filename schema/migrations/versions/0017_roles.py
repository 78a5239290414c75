"""Roles with the least rights: the API, workers, senders of webhooks, readers, submitters.

The role `<database>_app`, which has the rights of all processes, stays for the previous release.
"""

from typing import Final

from alembic import op

revision = "0017"
down_revision = "0016"

# PostgreSQL would cut a longer name off, and two roles could get the same one.
_CREATE: Final = """
DO $$ DECLARE suffix text; role text; BEGIN
    FOREACH suffix IN ARRAY ARRAY['api', 'worker', 'webhooks', 'reader', 'submit'] LOOP
        role := current_database() || '_' || suffix;
        IF octet_length(role) > 63 THEN
            RAISE EXCEPTION 'the name of the database is too long for role %, of at most 63 bytes',
                role;
        END IF;
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I LOGIN', role);
            EXCEPTION WHEN insufficient_privilege THEN
                RAISE EXCEPTION 'role % may not create role %: give it CREATEROLE, or create the'
                    ' roles %_api, %_worker, %_webhooks, %_reader and %_submit first',
                    current_user, role, current_database(), current_database(), current_database(),
                    current_database(), current_database()
                    USING ERRCODE = 'insufficient_privilege';
            END;
            EXECUTE format('COMMENT ON ROLE %I IS ''cardledger''', role);
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), role);
    END LOOP;
END $$
"""

_VERSIONS: Final = "SELECT ON alembic_version, schema_compatibility"

# The API changes no amount, no event, no entry and no outcome: what is to change them goes through
# the inbox. An account that it opens has amounts of zero, a transfer that it requests no time of
# settlement, without which it is not COMPLETED.
_API: Final = (
    _VERSIONS,
    (
        "SELECT ON acceptances, agent_actions, agent_device_codes, agents, api_tokens,"
        " beneficial_owners, card_reveals, card_transaction_events, card_transactions, cards,"
        " customers, deposits, duplicates, entries, external_accounts, idempotency_keys, inbox,"
        " inbox_shards, internal_accounts, outbox, outcomes, parked, pending_pulls,"
        " rejection_retries, rejections, stalled_queues, system_accounts, transfers, verifications,"
        " webhook_attempts, webhook_deliveries, webhook_endpoints"
    ),
    # Not the private keys, with which only the senders of webhooks sign.
    (
        "SELECT (id, name, supported_currencies, public_key, webhook_secret, created_at,"
        " updated_at, currency_settings, uma_domain, embedded_wallet_config,"
        " card_tokenization_2fa_config, fee_configs) ON platforms"
    ),
    (
        "SELECT (id, platform_id, public_key, signs_from, former_until, created_at)"
        " ON webhook_signing_keys"
    ),
    (
        "INSERT ON agent_actions, agent_device_codes, agents, api_tokens, beneficial_owners,"
        " card_reveals, cards, customers, external_accounts, idempotency_keys, inbox, outbox,"
        " rejection_retries, rejections, system_accounts, verifications, webhook_deliveries,"
        " webhook_endpoints, webhook_signing_keys"
    ),
    (
        "INSERT (id, customer_id, platform_id, currency, type, status, created_at, updated_at)"
        " ON internal_accounts"
    ),
    (
        "INSERT (id, customer_id, platform_id, source_account_id, destination_account_id, amount,"
        " currency, status, agent_id, remittance_information, purpose_of_payment, created_at,"
        " updated_at) ON transfers"
    ),
    "UPDATE (rejection_reason) ON agent_actions",
    "UPDATE (redeemed_at, replaced_at) ON agent_device_codes",
    "UPDATE (name, is_paused, policy, access_token_hash, updated_at, deleted_at) ON agents",
    (
        "UPDATE (secret_hash, former_secret_hash, former_secret_until, updated_at, last_used_at)"
        " ON api_tokens"
    ),
    "DELETE ON api_tokens",
    (
        "UPDATE (roles, ownership_percentage, personal_info, identifier, kyc_status, updated_at)"
        " ON beneficial_owners"
    ),
    "UPDATE (opened_at, view_count) ON card_reveals",
    (
        "UPDATE (state, state_reason, funding_sources, max_spend_per_transaction, updated_at)"
        " ON cards"
    ),
    (
        "UPDATE (platform_customer_id, kyc_status, uma_address, region, currencies, email,"
        " phone_number, full_name, birth_date, nationality, address, is_deleted, updated_at,"
        " business_info, id_type, identifier, country_of_issuance, due_diligence,"
        " end_user_terms_consent) ON customers"
    ),
    (
        "UPDATE (status, default_uma_deposit_account, beneficiary_verification_status,"
        " beneficiary_verified_name, updated_at, deleted_at) ON external_accounts"
    ),
    "UPDATE (status, answer) ON idempotency_keys",
    "UPDATE (status, updated_at) ON internal_accounts",
    (
        "UPDATE (supported_currencies, updated_at, currency_settings, uma_domain,"
        " embedded_wallet_config, card_tokenization_2fa_config, fee_configs) ON platforms"
    ),
    "UPDATE (status, failure_reason, updated_at) ON transfers",
    "UPDATE (status, errors, updated_at) ON verifications",
    "UPDATE (state, next_attempt_at, endpoint_id, attempts_before) ON webhook_deliveries",
    (
        "UPDATE (url, description, event_types, state, disabled_reason, secret, former_secret,"
        " former_secret_until, failing_since, updated_at, deleted_at, discarded_at, collects_until)"
        " ON webhook_endpoints"
    ),
)

_WORKER: Final = (
    _VERSIONS,
    (
        "SELECT ON card_transaction_events, card_transactions, cards, inbox, inbox_shards,"
        " internal_accounts, outcomes, parked, pending_pulls, rejections, stalled_queues,"
        " system_accounts, transfers"
    ),
    # Not who they are.
    "SELECT (id, platform_id, platform_customer_id) ON customers",
    (
        "INSERT ON card_transaction_events, card_transactions, deposits, duplicates, entries,"
        " inbox, outbox, outcomes, parked, pending_pulls, rejections, stalled_queues"
    ),
    "DELETE ON inbox, parked, pending_pulls, stalled_queues",
    (
        "UPDATE (descriptor, mcc, country, status, sequence, authorizations, authorized, settled,"
        " settlement_count, refunded, refund_count, pulled, pull_count, pending, pending_count,"
        " open_pull, unpaid, debt_since, debt_id, released, release_count, closed_by, declined,"
        " decline_reason, expires_at, last_event_at, updated_at) ON card_transactions"
    ),
    (
        "UPDATE (state, state_reason, brand, last4, exp_month, exp_year, activate_at, updated_at)"
        " ON cards"
    ),
    "UPDATE (balance, held, owed, pending, version, updated_at) ON internal_accounts",
    "UPDATE (status, failure_reason, settled_at, updated_at) ON transfers",
    "UPDATE (message_id, error, attempts, last_attempt_at) ON stalled_queues",
    # The right to update any column is also the right to lock a row.
    "UPDATE (lock) ON inbox_shards",
    "UPDATE (due_at) ON pending_pulls",
)

_WEBHOOKS: Final = (
    _VERSIONS,
    # A webhook is folded from its events.
    "SELECT ON card_transaction_events, card_transactions",
    "SELECT (id, platform_customer_id) ON customers",
    "SELECT (id, signing_key, webhook_secret) ON platforms",
    (
        "SELECT ON outbox, webhook_attempts, webhook_deliveries, webhook_endpoints,"
        " webhook_signing_keys"
    ),
    "INSERT ON outbox, webhook_attempts, webhook_deliveries",
    "UPDATE (retry_at) ON outbox",
    "DELETE ON outbox",
    ("UPDATE (state, attempts, next_attempt_at, last_status, delivered_at) ON webhook_deliveries"),
    "UPDATE (state, disabled_reason, failing_since, updated_at, discarded_at) ON webhook_endpoints",
)

# Everything but hashes of secrets and what is encrypted with the server key.
_READER: Final = (
    _VERSIONS,
    (
        "SELECT ON acceptances, agent_actions, card_transaction_events, card_transactions, cards,"
        " deposits, duplicates, entries, external_accounts, inbox, inbox_shards, internal_accounts,"
        " journal, outbox, outcomes, parked, pending_pulls, rejection_retries, rejections,"
        " stalled_queues, system_accounts, transfers, verifications, webhook_attempts,"
        " webhook_deliveries"
    ),
    ("SELECT (agent_id, created_at, expires_at, redeemed_at, replaced_at) ON agent_device_codes"),
    (
        "SELECT (id, platform_id, customer_id, name, is_paused, policy, created_at, updated_at,"
        " deleted_at) ON agents"
    ),
    (
        "SELECT (id, platform_id, name, client_id, permissions, created_at, scopes, expires_at,"
        " allowed_addresses, former_secret_until, updated_at, last_used_at) ON api_tokens"
    ),
    (
        "SELECT (id, platform_id, customer_id, roles, ownership_percentage, personal_info,"
        " kyc_status, created_at, updated_at) ON beneficial_owners"
    ),
    (
        "SELECT (card_id, api_token_id, created_at, expires_at, opened_at, view_count)"
        " ON card_reveals"
    ),
    (
        "SELECT (id, platform_id, platform_customer_id, customer_type, kyc_status, uma_address,"
        " region, currencies, email, phone_number, full_name, birth_date, nationality, address,"
        " is_deleted, created_at, updated_at, business_info, id_type, country_of_issuance,"
        " due_diligence, end_user_terms_consent) ON customers"
    ),
    ("SELECT (platform_id, key, request_hash, event, status, created_at) ON idempotency_keys"),
    (
        "SELECT (id, name, supported_currencies, public_key, created_at, updated_at,"
        " currency_settings, uma_domain, embedded_wallet_config, card_tokenization_2fa_config,"
        " fee_configs) ON platforms"
    ),
    (
        "SELECT (id, platform_id, is_default, url, description, event_types, mode, state,"
        " disabled_reason, former_secret_until, failing_since, created_at, updated_at, deleted_at,"
        " discarded_at, collects_until) ON webhook_endpoints"
    ),
    (
        "SELECT (id, platform_id, public_key, signs_from, former_until, created_at)"
        " ON webhook_signing_keys"
    ),
)

_SUBMIT: Final = ("INSERT ON inbox", "SELECT ON outcomes")

_RIGHTS: Final = {
    "api": _API,
    "worker": _WORKER,
    "webhooks": _WEBHOOKS,
    "reader": _READER,
    "submit": _SUBMIT,
}

# A role of that name may be the user's own: only the one with our comment is dropped, and not while
# another installation in this database, or anything else, depends on it.
_RELEASE: Final = """
DO $$ DECLARE suffix text; role text; BEGIN
    FOREACH suffix IN ARRAY ARRAY['api', 'worker', 'webhooks', 'reader', 'submit'] LOOP
        role := current_database() || '_' || suffix;
        CONTINUE WHEN NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role);
        EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM %I', current_schema(), role);
        EXECUTE format('REVOKE USAGE ON SCHEMA %I FROM %I', current_schema(), role);
        CONTINUE WHEN NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role
            AND shobj_description(oid, 'pg_authid') = 'cardledger');
        BEGIN
            EXECUTE format('DROP ROLE %I', role);
        EXCEPTION WHEN dependent_objects_still_exist THEN
            NULL;
        END;
    END LOOP;
END $$
"""


def upgrade() -> None:
    """Create the roles, which can log in and have no password yet, and give each its rights."""
    op.execute(_CREATE)
    for suffix, rights in _RIGHTS.items():
        given = " ".join(f"EXECUTE format('GRANT {right} TO %I', role);" for right in rights)
        op.execute(
            f"DO $$ DECLARE role text := current_database() || '_{suffix}'; BEGIN {given} END $$"
        )


def downgrade() -> None:
    """Take the rights, and drop the roles unless something else depends on them."""
    op.execute(_RELEASE)
