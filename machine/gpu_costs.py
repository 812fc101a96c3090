"""The time that a program of small kernels takes on a GPU, predicted from its launches and waits.

`PROGRAMS` is what `kytolly benchmark gpu-program` prints; a test compares them, and its numbers may
only fall.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class GpuCosts(NamedTuple):
    """Microseconds that a GPU takes for what a small network does; larger kernels take longer.

    Attributes:
        launch_microseconds: One kernel: the median of 14 programs of one agent, each between 1.4
            and 1.9, run on an H100 by `scripts/run_on_device.py` with JAX 0.11.2 (docs/gpu.md).
        wait_microseconds: One value that the host reads back before it goes on. An assumption: a
            copy, a synchronization, and a queue that has run empty.
    """

    launch_microseconds: float = 1.7
    wait_microseconds: float = 20.0

    def milliseconds(self, launches: int, waits: int) -> float:
        """Predicted time of a program."""
        return (launches * self.launch_microseconds + waits * self.wait_microseconds) / 1e3


class ProgramSize(NamedTuple):
    """One iteration of a device loop on an H100.

    Attributes:
        launches: Kernels, of each conditional the largest branch.
        waits: Times that the host waits for the device.
        num_envs: Environments, of all agents together.
        env_steps: Of all environments.
    """

    launches: int
    waits: int
    num_envs: int
    env_steps: int


COSTS = GpuCosts()
PROGRAMS = {
    "ppo": ProgramSize(1410, 0, 4, 512),
    "ppo-agents": ProgramSize(1656, 0, 4096, 524_288),
    "ppo-wide": ProgramSize(3613, 0, 2048, 32_768),
    "ppo-gru": ProgramSize(25_068, 0, 4, 512),
    "ppo-lru": ProgramSize(2296, 0, 4, 512),
    "ppo-kl": ProgramSize(1570, 0, 4, 512),
    "dqn": ProgramSize(110, 0, 1, 10),
    "dqn-agents": ProgramSize(140, 0, 128, 1280),
    "dqn-10-envs": ProgramSize(50, 0, 10, 10),
    "pqn": ProgramSize(2970, 0, 128, 4096),
    "pqn-agents": ProgramSize(3390, 0, 2048, 65_536),
    "ddqn": ProgramSize(54, 0, 10, 10),
    "c51": ProgramSize(58, 0, 10, 10),
    "qr-dqn": ProgramSize(54, 0, 10, 10),
    "iqn": ProgramSize(75, 0, 10, 10),
    "munchausen": ProgramSize(54, 0, 10, 10),
    "rainbow": ProgramSize(95, 0, 10, 10),
}


def predicted_milliseconds(name: str, costs: GpuCosts = COSTS) -> float:
    """Predicted time of an iteration of a program of `PROGRAMS`."""
    size = PROGRAMS[name]
    return costs.milliseconds(size.launches, size.waits)


def counted(number: int, word: str) -> str:
    """A number of things, such as `1 wait` or `6 waits`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def when_a_gpu_pays(name: str, cpu_milliseconds: float, costs: GpuCosts = COSTS) -> str:
    """Advice for a program of `PROGRAMS` whose iteration takes so long on this machine's CPU.

    More environments add work to each kernel and no kernel; on the CPU the time is taken to grow
    with them.
    """
    size, gpu_milliseconds = PROGRAMS[name], predicted_milliseconds(name, costs)
    waits = f" and {counted(size.waits, 'wait')}" if size.waits else ""
    line = (
        f"{name}: {size.launches:,} launches{waits} for {size.env_steps:,} env steps of "
        f"{counted(size.num_envs, 'environment')}: about {gpu_milliseconds:.2f} ms on a GPU "
        f"(predicted), {cpu_milliseconds:.2f} ms on this CPU: "
    )
    if gpu_milliseconds < cpu_milliseconds:
        return f"{line}use the GPU"
    needed = math.ceil(size.num_envs * gpu_milliseconds / cpu_milliseconds)
    return f"{line}use the CPU, or more than {needed:,} environments"
