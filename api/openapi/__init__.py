"""The OpenAPI document, its page, and the operations that are not implemented."""
