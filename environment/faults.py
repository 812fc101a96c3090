"""Faults of environments: neither their user nor this library did something wrong."""

from __future__ import annotations

import contextlib
import traceback
import warnings
from collections.abc import Iterator
from typing import NamedTuple, NoReturn, Protocol


class EnvironmentFault(RuntimeError):
    """An environment raised, or returned what it had not promised; its message is one line."""

    def __init__(self, message: object):  # Gymnasium's processes make one of another one
        super().__init__(one_line(str(message)))


def raise_fault(name: str, error: BaseException, method: str, where: str) -> NoReturn:
    """Raise what an environment did as a fault that says in which method and where it happened."""
    if isinstance(error, EnvironmentFault):
        raise EnvironmentFault(f"{error} It happened in {method} {where}.") from error.__cause__
    text = one_line(str(error)) or "it says no more"
    raise EnvironmentFault(
        f"{name} raised {type(error).__name__} in {method} {where}: {text}{place_text(error)}"
    ) from error


def place_text(error: BaseException) -> str:
    """Where the code of an environment's author raised it, as the end of a message; or nothing.

    An installed package is named only where the error says nothing else. Of a reset() that takes
    no seed, which no line of the author's raises, what it should be.
    """
    if "reset() got an unexpected keyword argument 'seed'" in str(error):
        return ". Let it be reset(self, *, seed=None, options=None)"
    installed = ""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if str(frame.f_globals.get("__name__")).partition(".")[0] == "kytolly":
            break
        place = f" ({frame.f_code.co_filename}, line {line})"
        if "site-packages" not in frame.f_code.co_filename:
            return place
        installed = installed or place
    return "" if str(error) else installed


class RemoteError(NamedTuple):
    """An exception as another process can hold it: the names of its classes, and texts."""

    kinds: list[str]  # its own class first
    text: str
    traceback: str
    missing: str | None  # the module that an ImportError did not find
    place: str = ""  # `place_text`

    @classmethod
    def of(cls, error: BaseException) -> RemoteError:
        """The parts of an exception."""
        missing = getattr(error, "name", None)
        return cls(
            [kind.__name__ for kind in type(error).__mro__],
            one_line(str(error)) if str(error) else display_text(error),
            "".join(traceback.format_exception(error)),
            missing if isinstance(missing, str) else None,
            place_text(error),
        )


class Closable(Protocol):
    """An environment, or anything else that can be closed."""

    def close(self) -> object:
        """Free what it holds."""


def close_or_warn(env: Closable, name: str) -> None:
    """Close an environment; one that cannot close must not cost the result of a training."""
    try:
        env.close()
    except (Exception, SystemExit) as error:
        warnings.warn(
            one_line(f"{name} raised {type(error).__name__} in close(): {error}"), stacklevel=3
        )


@contextlib.contextmanager
def closing(env: Closable, name: str) -> Iterator[None]:
    """Close an environment after the block, by `close_or_warn`."""
    try:
        yield
    finally:
        close_or_warn(env, name)


def one_line(text: str, most: int = 800) -> str:
    """A text without line breaks; of more than `most` characters, the middle is left out."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most // 2]} ... {line[-most // 2 :]}"


def display_text(value: object) -> str:
    """A value for a message, in one line of limited length, whatever its own `repr` does."""
    try:
        return one_line(repr(value), 200)
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"
