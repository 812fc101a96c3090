"""A trained run in use without training: load, act, export, record."""
