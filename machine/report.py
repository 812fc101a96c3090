"""The report of `configure_gpu_optimization()`: one item for each switch."""

from __future__ import annotations

import dataclasses
from typing import Any, TextIO


@dataclasses.dataclass(frozen=True, slots=True)
class ReportItem:
    """One switch: whether it is on now, whether it was asked for, and what prevented it."""

    name: str
    done: bool
    message: str
    reason: str = ""
    requested: bool = True

    def line(self) -> str:
        """The item as it is printed."""
        if self.done or not self.requested:
            return f"{'✅' if self.done else '○'} {self.message}"
        return f"⚠️  {self.message}: {self.reason}"


@dataclasses.dataclass(frozen=True, slots=True)
class OptimizationReport:
    """The steps of `configure_gpu_optimization()`, item by item, in their order."""

    items: tuple[ReportItem, ...]

    def __getitem__(self, name: str) -> ReportItem:
        return {item.name: item for item in self.items}[name]

    def print(self, file: TextIO) -> None:
        """Print one line per item; a terminal without these characters gets question marks."""
        encoding = getattr(file, "encoding", None) or "utf-8"
        for item in self.items:
            print(item.line().encode(encoding, "replace").decode(encoding), file=file)

    def as_dict(self) -> dict[str, Any]:
        """The report in types that JSON knows."""
        return dataclasses.asdict(self)


def item_on(name: str, message: str, reason: str = "") -> ReportItem:
    """An item that is on; a reason is something to know about it."""
    return ReportItem(name, True, message, reason)


def item_off(name: str, message: str) -> ReportItem:
    """An item that nobody asked for."""
    return ReportItem(name, False, message, requested=False)


def item_failed(name: str, message: str, reason: object) -> ReportItem:
    """An item that was asked for and could not be done."""
    return ReportItem(name, False, message, " ".join(str(reason).split()))
