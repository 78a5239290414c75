"""Traces by OpenTelemetry: from a request to the inbox, the batch and the delivery of a webhook."""
