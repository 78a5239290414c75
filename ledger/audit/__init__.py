"""The audit behind `cardledger verify`: stored rows against a new fold of every event."""
