"""The machine: what it has, what works on it, and how TensorFlow is set up for it."""
