"""One batch, one commit: parse, load, decide, write. The hot path.

`commit` runs a batch: `reads` loads a snapshot, `decisions` decide the messages on it and collect
rows in a `change_set`, `writes` writes them. Webhooks are collected with the other rows, except
INTERNAL_ACCOUNT.BALANCE_UPDATED: `writes.update_accounts` emits it, because the database has the
columns of the account that the webhook needs and the batch does not.
"""
