"""Environments in tensor code."""
