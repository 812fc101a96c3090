"""Search in a collection of texts, and what learning to reformulate queries needs of it."""
