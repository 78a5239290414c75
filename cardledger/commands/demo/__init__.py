"""`cardledger demo`: a restaurant tip, simulated traffic, a verification, next steps."""
