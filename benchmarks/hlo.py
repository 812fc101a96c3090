"""Reads the optimized HLO of a GPU program: its kernels, loops, and what makes the host wait.

An instruction that is left after the optimizations is a launch, but for those that only name
memory. A loop of known length costs its launches that often. Before each turn of any other loop,
and at each conditional, the host reads a value back from the device. A conditional counts as its
largest branch.

Source: openxla/xla, `xla/backends/gpu/runtime`: `WhileThunk` and `ConditionalThunk`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

FREE = frozenset(
    {
        "add-dependency",
        "after-all",
        "bitcast",
        "constant",
        "get-dimension-size",
        "get-tuple-element",
        "opt-barrier",
        "parameter",
        "partition-id",
        "replica-id",
        "tuple",
    }
)
COPIES = frozenset({"copy", "copy-start"})
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*->.*\{$")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (\([^=]*?\)|\S+) ([\w\-]+)\(")
COMMENT = re.compile(r"/\*.*?\*/")
TRIPS = re.compile(r"known_trip_count\D*?(\d+)")
BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
SOURCE = re.compile(r'op_name="([^"]*)"')


class Instruction(NamedTuple):
    """One line of a computation."""

    name: str
    op: str
    shape: str
    line: str

    def attribute(self, name: str) -> str | None:
        """The computation that an attribute such as `body` names."""
        match = re.search(rf"\b{name}=%?([\w.\-]+)", self.line)
        return match[1] if match else None


class Kernel(NamedTuple):
    """One launch: its name, operation and result, and the operation that it was made from."""

    name: str
    op: str
    shape: str
    source: str


@dataclasses.dataclass
class Block:
    """What is launched in order, and the loops and choices in it.

    Attributes:
        kind: "entry", "loop", "conditional" or "branch".
        name: Of its computation.
        trips: Turns of a loop; None where the compiler does not know them.
        kernels: Launched once each turn.
        blocks: In the order of the program.
    """

    kind: str
    name: str
    trips: int | None = 1
    kernels: list[Kernel] = dataclasses.field(default_factory=list)
    blocks: list[Block] = dataclasses.field(default_factory=list)

    @property
    def turns(self) -> int:
        """Turns that are counted: an unknown number counts once."""
        return 1 if self.trips is None else self.trips

    @property
    def waits_itself(self) -> bool:
        """True if the host reads a value back to go on."""
        return self.kind == "conditional" or self.trips is None

    def launches(self, choose: Callable[..., int] = max) -> int:
        """Launches of one turn; of each conditional the largest branch, or the `choose`n one."""
        inner = [block.turns * block.launches(choose) for block in self.blocks]
        if self.kind == "conditional":
            return choose(inner, default=0)
        return len(self.kernels) + sum(inner)

    def waits(self) -> int:
        """Times that the host waits in one turn; once for each turn of an unknown length."""
        inner = [block.turns * block.waits() + int(block.waits_itself) for block in self.blocks]
        return max(inner, default=0) if self.kind == "conditional" else sum(inner)

    def copies(self) -> int:
        """Launches of one turn that only copy; of each conditional the largest branch's."""
        inner = [block.turns * block.copies() for block in self.blocks]
        if self.kind == "conditional":
            return max(inner, default=0)
        return sum(kernel.op in COPIES for kernel in self.kernels) + sum(inner)

    def sites(self) -> tuple[int, int]:
        """Conditionals, and loops of unknown length, in the text of the block."""
        conditionals = sum(block.kind == "conditional" for block in self.blocks)
        unknown = sum(block.trips is None for block in self.blocks)
        inner = [block.sites() for block in self.blocks]
        return (
            conditionals + sum(site[0] for site in inner),
            unknown + sum(site[1] for site in inner),
        )

    def formula(self) -> str:
        """The launches of one turn, such as `43 + 128 x 22 + 16 x 37`."""
        words = [str(len(self.kernels))] if self.kernels or not self.blocks else []
        for block in self.blocks:
            inner = block.formula()
            if block.kind == "conditional":
                words.append(f"({' or '.join(branch.formula() for branch in block.blocks)})")
                continue
            count = "n" if block.trips is None else str(block.trips)
            words.append(f"{count} x {inner if inner.isdecimal() else f'({inner})'}")
        return " + ".join(words)

    def walk(self) -> Iterator[Block]:
        """This block and all inside it."""
        yield self
        for block in self.blocks:
            yield from block.walk()

    def find(self, trips: int | None) -> Block | None:
        """The loop of so many turns that launches most; None where there is none."""
        loops = [block for block in self.walk() if block.kind == "loop" and block.trips == trips]
        return max(loops, key=Block.launches, default=None)


class Computations(NamedTuple):
    """The text by computation, and the name of the first."""

    instructions: dict[str, list[Instruction]]
    entry: str


def split_computations(text: str) -> Computations:
    """The instructions of each computation of a module's text.

    Raises:
        ValueError: There is no entry.
    """
    computations: dict[str, list[Instruction]] = {}
    entry, current = "", None
    for line in text.splitlines():
        header = None if line.startswith(" ") else COMPUTATION.match(line)
        if header:
            current = computations.setdefault(header[2], [])
            entry = header[2] if header[1] else entry
        elif line.startswith("}"):
            current = None
        elif current is not None:
            plain = COMMENT.sub("", line)
            if match := INSTRUCTION.match(plain):
                current.append(Instruction(match[1], match[3], match[2], plain))
    if not entry:
        raise ValueError("the text has no ENTRY, expected an HLO module.")
    return Computations(computations, entry)


def read_program(text: str) -> Block:
    """The blocks of an optimized HLO module."""
    computations, entry = split_computations(text)
    block = Block("entry", entry)
    fill(block, entry, computations)
    return block


def fill(block: Block, name: str, computations: dict[str, list[Instruction]]) -> None:
    """Add what a computation launches."""
    for instruction in computations[name]:
        op = instruction.op
        if op == "while":
            body = instruction.attribute("body") or ""
            trips = TRIPS.search(instruction.line)
            loop = Block("loop", body, int(trips[1]) if trips else None)
            fill(loop, body, computations)
            block.blocks.append(loop)
        elif op == "conditional":
            choice = Block("conditional", instruction.name)
            for branch in branch_names(instruction):
                choice.blocks.append(Block("branch", branch))
                fill(choice.blocks[-1], branch, computations)
            block.blocks.append(choice)
        elif op == "call":
            fill(block, instruction.attribute("to_apply") or "", computations)
        elif op not in FREE and not op.endswith("-done"):
            source = SOURCE.search(instruction.line)
            words = source[1] if source else ""
            block.kernels.append(Kernel(instruction.name, op, instruction.shape, words))


def branch_names(instruction: Instruction) -> Sequence[str]:
    """The computations that a conditional chooses between."""
    if match := BRANCHES.search(instruction.line):
        return [name.strip().lstrip("%") for name in match[1].split(",")]
    names = [instruction.attribute(f"{side}_computation") for side in ("true", "false")]
    return [name for name in names if name]


def nested(block: Block, trips: int, without: Block | None = None) -> Block | None:
    """The innermost of nested loops whose turns multiply to `trips`, where launches most."""
    candidates = []
    for loop in block.blocks:
        if loop.kind != "loop" or not loop.trips or loop is without:
            continue
        if loop.trips == trips:
            candidates.append(loop)
        elif trips % loop.trips == 0 and (inner := nested(loop, trips // loop.trips)) is not None:
            candidates.append(inner)
    return max(candidates, key=Block.launches, default=None)
