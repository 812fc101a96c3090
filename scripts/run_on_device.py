"""Times training programs on whatever JAX runs on, a GPU for choice, without TensorFlow.

    python run_on_device.py FOLDER --iterations 100 1000

Copy this file and a folder of programs to a machine with JAX and a GPU. The programs are those that
`kytolly benchmark gpu-program --log-dir FOLDER` leaves there: ours, rejax's and PureJaxRL's, each
with its inputs in an .npz file. It needs JAX and NumPy, and nothing of this project. Every program
is called once before it is timed; the time is the median of the calls after that, to the last
result on the device. Programs of rejax and PureJaxRL make all their iterations in a call.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jaxlib.mlir import ir


class Timing(NamedTuple):
    """One program with so many iterations in a call."""

    program: str
    iterations: int
    compile_seconds: float
    microseconds_per_iteration: float
    env_steps_per_second: float


def drop_copies(module: ir.Module) -> None:
    """Take TensorFlow's `mhlo.copy` out, which JAX's compiler refuses."""
    copies: list[Any] = []

    def visit(operation: Any) -> None:
        for region in operation.regions:
            for block in region.blocks:
                for child in block.operations:
                    if child.operation.name == "mhlo.copy":
                        copies.append(child.operation)
                    visit(child.operation)

    visit(module.operation)
    for copy in copies:
        copy.results[0].replace_all_uses_with(copy.operands[0])
        copy.erase()


class DeviceProgram:
    """A compiled program and its inputs.

    Args:
        path: File with StableHLO; its inputs are in the file of that name with .npz.
        device: JAX's device.
    """

    def __init__(self, path: Path, device: Any):
        self.device = device
        saved = dict(np.load(f"{path}.npz"))
        self.sizes = {name: int(saved.pop(name)) for name in list(saved) if name[:4] != "arr_"}
        self.inputs = [saved[f"arr_{number}"] for number in range(len(saved))]
        self.takes_count = "env_steps_per_iteration" in self.sizes
        begin = time.perf_counter()
        with mlir.make_ir_context():
            module = ir.Module.parse(path.read_bytes())
            drop_copies(module)
            options = xla_client.CompileOptions()
            assignment = np.array([[device.id]])
            options.device_assignment = xla_client.DeviceAssignment.create(assignment)
            self.program = device.client.compile_and_load(
                module,
                executable_devices=xla_client.DeviceList((device,)),
                compile_options=options,
            )
        self.compile_seconds = time.perf_counter() - begin

    def call(self, iterations: int) -> tuple[list[Any], float]:
        """Results and seconds; the program takes its inputs' memory, so they are put anew."""
        values = list(self.inputs)
        if self.takes_count:
            values[0] = np.int32(iterations)
        arguments = jax.block_until_ready([jax.device_put(v, self.device) for v in values])
        begin = time.perf_counter()
        results = jax.block_until_ready(self.program.execute(arguments))
        return results, time.perf_counter() - begin

    def iterations(self, asked: list[int]) -> list[int]:
        """The iterations of a call: those asked for, or the program's own number."""
        return asked if self.takes_count else [self.sizes["iterations"]]

    def env_steps(self, iterations: int) -> int:
        """Env steps of a call."""
        if self.takes_count:
            return iterations * self.sizes["env_steps_per_iteration"]
        return self.sizes["env_steps"]


def time_program(path: Path, device: Any, asked: list[int], repeats: int) -> list[Timing]:
    """The medians of a program, by iterations in a call."""
    program = DeviceProgram(path, device)
    timings = []
    for iterations in program.iterations(asked):
        program.call(iterations)
        seconds = statistics.median(program.call(iterations)[1] for _ in range(repeats))
        per_iteration = 1e6 * seconds / iterations
        rate = program.env_steps(iterations) / seconds
        timings.append(Timing(path.name, iterations, program.compile_seconds, per_iteration, rate))
    return timings


def save_results(path: Path, device: Any, iterations: int, file: Path) -> None:
    """Write what a program returns after so many iterations, in its order."""
    results, _ = DeviceProgram(path, device).call(iterations)
    np.savez(file, *(np.asarray(result) for result in results))


def main(argv: list[str] | None = None) -> int:
    """Time all programs of a folder, or those that are named, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder of the programs")
    parser.add_argument("programs", nargs="*", help="names of programs instead of all")
    parser.add_argument("--iterations", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--repeats", type=int, default=3, help="calls behind each median")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        help="write what one program returns there, instead of timing it",
    )
    args = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    device = jax.devices()[0]
    names = args.programs or sorted(
        path.stem for path in args.folder.glob("*.npz") if path.with_suffix("").is_file()
    )
    if missing := [name for name in names or ["any"] if not (args.folder / name).is_file()]:
        print(f"{args.folder} has no program {missing[0]!r}: write them with kytolly benchmark "
              f"gpu-program --log-dir {args.folder}", file=sys.stderr)  # fmt: skip
        return 2
    if args.results:
        save_results(args.folder / names[0], device, args.iterations[0], args.results)
        return 0
    print(f"JAX {jax.__version__}, {device.device_kind}, median of {args.repeats} calls\n")
    print("| program | iterations a call | compile s | µs an iteration | env steps/s |")
    print("| --- | ---: | ---: | ---: | ---: |")
    timings: list[Timing] = []
    for name in names:
        try:
            rows = time_program(args.folder / name, device, args.iterations, args.repeats)
        except Exception as error:  # the others are timed all the same
            print(f"{name}: {' '.join(str(error).split())[:200]}", file=sys.stderr)
            continue
        for row in rows:
            print(
                f"| {row.program} | {row.iterations:,} | {row.compile_seconds:.1f} | "
                f"{row.microseconds_per_iteration:,.1f} | {row.env_steps_per_second:,.0f} |",
                flush=True,
            )
        timings += rows
    if args.json:
        found = {"jax": jax.__version__, "device": device.device_kind}
        rows = [timing._asdict() for timing in timings]
        args.json.write_text(json.dumps({**found, "timings": rows}) + "\n")
    return int(not timings)


if __name__ == "__main__":
    sys.exit(main())
