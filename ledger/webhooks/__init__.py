"""Webhooks: endpoints and their tests, dispatch, leases, ordering, retries, replays, signatures."""
