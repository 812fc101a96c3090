"""Callbacks, which only watch a run: they log, save, show progress and stop it."""
