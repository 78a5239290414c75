"""Contact verification and strong customer authentication."""
