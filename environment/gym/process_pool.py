"""Processes that stay from one evaluation to the next: only the environments are made anew."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kytolly.environment.gym.processes import ProcessVector
from kytolly.environment.gym.restarts import Restarts
from kytolly.environment.gym.step import EnvFactory, environment_seeds
from kytolly.environment.gym.vector import HostVector


class ProcessPool:
    """Makes environments in processes again and again.

    To start a process costs seconds where the user's script imports TensorFlow: each process
    imports the script.

    Args:
        like: Makes the same environments, and treats their faults in the same way.
        make: Makes others that look the same; None: those of `like`.
    """

    def __init__(self, like: ProcessVector, make: EnvFactory | None = None):
        self.like, self.task = like, like.task._replace(make=make or like.task.make)
        self.vector: ProcessVector | None = None

    @contextlib.contextmanager
    def environments(self, num_envs: int, seed: int) -> Iterator[HostVector]:
        """New environments, closed after the block; their processes end where it raises.

        Args:
            num_envs: Environments; processes are used again where they are as many.
            seed: Each environment's own seed follows from this one.
        """
        like, seeds = self.like, environment_seeds(seed, num_envs)
        name, limit = like.description.name, like.timeout
        restarts = None if like.restarts is None else Restarts(name, seeds)
        try:
            if self.vector is not None and self.vector.num_envs == num_envs:
                self.vector.renew(restarts)
            else:
                self.close()
                task, places = self.task._replace(count=num_envs), range(num_envs)
                self.vector = ProcessVector(task, like.description, places, limit, restarts)
            env = self.vector
            yield HostVector(env, name, like.description.known_spec, seeds, timeout_seconds=limit)
            env.release()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the processes."""
        if self.vector is not None:
            self.vector.close()
            self.vector = None
