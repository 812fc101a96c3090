"""Environments whose faults are files: the first to find one removes it and has the fault."""

import os
import signal
import sys
import time

import gymnasium
import numpy as np

KINDS = ("kill", "exit", "SystemExit", "raise", "hang", "closed pipe")


def failing(folder, methods=("step",), good_steps=3):
    """A class that fails once for each file `folder/KIND`, after some good steps of an episode.

    It is local, so that the processes do not load this file's package. It observes
    [seed of the first reset modulo 1000, episode, step], as `Predictable` does, and pays 1.
    """
    folder = str(folder)

    class Failing(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        action_space = gymnasium.spaces.Discrete(4)

        def __init__(self):
            self.id, self.episode, self.steps = 0, -1, 0
            if "constructor" in methods:
                self.fail()

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.id = self.id if seed is None else seed % 1000
            self.episode, self.steps = self.episode + 1, 0
            if "reset" in methods:
                self.fail()
            return self.observed(), {}

        def step(self, action):
            if "step" in methods and self.steps == good_steps:
                self.fail()
            self.steps += 1
            return self.observed(), 1.0, False, self.steps == 5, {}

        def observed(self):
            return np.array([self.id, self.episode, self.steps], np.float32)

        def fail(self):
            for kind in sorted(os.listdir(folder)):
                try:
                    os.remove(os.path.join(folder, kind))
                except FileNotFoundError:  # another process was faster
                    continue
                if kind == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                elif kind == "exit":
                    os._exit(3)
                elif kind == "SystemExit":
                    sys.exit("the end")
                elif kind.startswith("raise"):
                    raise KeyError("the bottom fell out")
                elif kind == "closed pipe":
                    os.closerange(3, 256)
                time.sleep(1_000)

    return Failing
