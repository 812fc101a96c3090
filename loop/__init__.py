"""In which order, and how often, the others are called."""
