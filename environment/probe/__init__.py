"""Tiny environments whose values are known."""
