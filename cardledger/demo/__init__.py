"""`cardledger demo`: the story first, the crowd second, the proof third, then where to look."""
