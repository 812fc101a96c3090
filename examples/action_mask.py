"""Forbid actions in your own environment: `python examples/action_mask.py`."""

import gymnasium
import numpy as np

from kytolly import PPOConfig
from kytolly.machine.configure import configure_gpu_optimization
from kytolly.trainer import Trainer


class Packing(gymnasium.Env):
    """Fill a box of 10 kg with parcels of 1, 3 and 4 kg that are worth 1, 4 and 5.

    Always taking the most valuable parcel that fits leads to 4 + 4 + 1 + 1 kg and a worth of 12;
    4 + 3 + 3 kg are worth 13. The action mask allows only the parcels that fit.
    """

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)
    kilograms, worth = np.array([1, 3, 4]), np.array([1.0, 4.0, 5.0])

    def reset(self, *, seed=None, options=None):
        """Begin with an empty box."""
        super().reset(seed=seed)
        self.free = 10
        return self._observation(), self._info()

    def step(self, action):
        """Take a parcel; the episode ends with a full box."""
        self.free -= self.kilograms[action]
        return self._observation(), self.worth[action], self.free == 0, False, self._info()

    def _observation(self):
        return np.array([self.free / 10], np.float32)

    def _info(self):
        return {"action_mask": self.kilograms <= self.free}  # with every reset and every step


configure_gpu_optimization()
cfg = PPOConfig(
    total_env_steps=10_000,
    num_envs=4,
    rollout_steps=64,
    learning_rate=2e-3,
    gamma=1.0,
    entropy_coef=0.02,
    seed=1,
)
result = Trainer().train_ppo(cfg, env=Packing)  # the class, so that the trainer can make several
nearly_full = {"observation": np.array([0.2], np.float32), "action_mask": np.array([1, 0, 0])}
print(f"parcel for the last 2 kg: {result.agent.act(nearly_full)}")
print(f"worth {result.evaluation.return_mean:.1f} of 13, run in {result.run_dir}")
