"""Settings of what learns from texts. Nothing here imports TensorFlow."""
