"""Says a line when training begins, when everything that was given is known to fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kytolly.callback.base import Callback, TrainState


class OpeningLine(Callback):
    """Says a line once, even where training begins again after a fault.

    Args:
        text: The line; nothing is said of an empty one.
        say: Prints it.
    """

    def __init__(self, text: str, say: Callable[[str], Any]):
        self._text, self._say = text, say

    def on_train_begin(self, state: TrainState) -> None:
        """Say it."""
        text, self._text = self._text, ""
        if text:
            self._say(text)
