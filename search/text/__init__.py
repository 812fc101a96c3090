"""Learning from texts: tokens, batches of rows of similar length, and tasks."""
