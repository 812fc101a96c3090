"""MinAtar's five games in tensor code."""
