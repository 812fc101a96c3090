"""The time that a small program takes on a GPU, predicted from its launches and waits."""

from __future__ import annotations

from typing import NamedTuple


class GpuCosts(NamedTuple):
    """Microseconds that a GPU takes for what a small network does; larger kernels take longer.

    Attributes:
        launch_microseconds: One kernel. PureJaxRL's published 17 to 25 s for 976 iterations of PPO
            on an A100 (https://chrislu.page/blog/meta-disco/), over the 5,308 launches that
            `kytolly benchmark gpu-program` counts in an iteration, make 3.3 to 4.8.
        wait_microseconds: One value that the host reads back before it goes on. An assumption: the
            copy, the synchronization and an empty queue cost a few launches.
    """

    launch_microseconds: float = 4.0
    wait_microseconds: float = 20.0

    def microseconds(self, launches: int, waits: int) -> float:
        """Predicted time of a program."""
        return launches * self.launch_microseconds + waits * self.wait_microseconds
