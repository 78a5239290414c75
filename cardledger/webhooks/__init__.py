"""Receive and verify webhooks.

from cardledger.webhooks import WebhookVerificationError, verify

event = verify(request.body, request.headers, secret="whsec_…")
"""

from cardledger.webhooks.verification import Reason, WebhookVerificationError, verify

__all__ = ["Reason", "WebhookVerificationError", "verify"]
