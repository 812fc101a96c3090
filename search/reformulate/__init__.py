"""Learning to change search queries."""
