"""The rules of money that is not a card's: transfers, payments, conversions and payment rails."""
