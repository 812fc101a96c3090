"""What is raised when an environment, not its user or this library, did something wrong."""

from __future__ import annotations


class EnvironmentFault(RuntimeError):
    """An environment raised, or returned what it had not promised."""


def mask_shape_fault(name: str, found: object, expected: object, where: str = "") -> Exception:
    """The fault of an environment whose action mask has another shape than its actions ask for."""
    return EnvironmentFault(
        f"{name} has an action mask of shape {found}{where}, expected {expected}: one number for "
        "each action, 1 where it is allowed and 0 where not, kind after kind."
    )
