"""What is raised when an environment, not its user or this library, did something wrong."""

from __future__ import annotations

from typing import NoReturn


class EnvironmentFault(RuntimeError):
    """An environment raised, or returned what it had not promised."""


def raise_fault(name: str, error: Exception, method: str, where: str) -> NoReturn:
    """Raise what an environment did as a fault that says in which method and where it happened."""
    if isinstance(error, EnvironmentFault):
        raise EnvironmentFault(f"{error} It happened in {method} {where}.") from error.__cause__
    raise EnvironmentFault(
        f"{name} raised {type(error).__name__} in {method} {where}: {error}"
    ) from error
