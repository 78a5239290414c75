"""Webhooks: endpoints, dispatch, leases, ordering, retries, signatures."""
