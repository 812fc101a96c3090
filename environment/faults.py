"""What is raised when an environment, not its user or this library, did something wrong."""

from __future__ import annotations


class EnvironmentFault(RuntimeError):
    """An environment raised, or returned what it had not promised."""
