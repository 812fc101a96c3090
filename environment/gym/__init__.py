"""Gymnasium environments on the host."""
