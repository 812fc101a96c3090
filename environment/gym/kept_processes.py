"""Processes that stay from one evaluation to the next: only the environments are made anew."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kytolly.environment.gym.processes import ProcessVector
from kytolly.environment.gym.restarts import Restarts
from kytolly.environment.gym.step import environment_seeds
from kytolly.environment.gym.vector import HostVector


class KeptProcesses:
    """Makes environments in processes again and again.

    To start a process costs seconds where the user's script imports TensorFlow: each process
    imports the script.

    Args:
        like: Makes the same environments, and treats their faults in the same way.
        make: Makes others that look the same; None: those of `like`.
    """

    def __init__(self, like: ProcessVector, make: Any = None):
        self.like, self.job = like, like.job._replace(make=make or like.job.make)
        self._kept: ProcessVector | None = None

    @contextlib.contextmanager
    def environments(self, num_envs: int, seed: int) -> Iterator[HostVector]:
        """New environments, closed after the block; their processes end where it raises.

        Args:
            num_envs: How many; processes are used again where they are as many.
            seed: Each environment's own seed follows from this one.
        """
        like, seeds = self.like, environment_seeds(seed, num_envs)
        name, limit = like.offer.name, like.timeout
        restarts = None if like.restarts is None else Restarts(name, seeds)
        try:
            if self._kept is not None and self._kept.num_envs == num_envs:
                self._kept.renew(restarts)
            else:
                self.close()
                job, places = self.job._replace(count=num_envs), range(num_envs)
                self._kept = ProcessVector(job, like.offer, places, limit, restarts)
            env = self._kept
            yield HostVector(env, name, like.offer.known_spec, seeds, timeout_seconds=limit)
            env.release()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the processes."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None
