"""Authentication of customers: verified contacts, factors, challenges (PSD2, articles 97 and 98).

Customers of the European Economic Area need it, while a `CodeSender` is connected; `region` decides
who they are. Every function here runs in the caller's database transaction and locks the
customer's row of `customer_authentication` first, so that concurrent answers are counted one by
one. A refusal is a value, not an exception: the transaction that has counted a wrong code commits.
Source: docs/decisions/0072-authentication-of-customers.md
"""
