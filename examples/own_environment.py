"""Train on your own Gymnasium environment: `python examples/own_environment.py`."""

import gymnasium
import numpy as np

from kytolly import DQNConfig
from kytolly.machine.configure import configure_gpu_optimization
from kytolly.trainer import Trainer


class Thermostat(gymnasium.Env):
    """Keep a room near 20 degrees: the heater is off or on, and the outside is cold."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        """Begin with a room between 15 and 25 degrees; outside it is between -5 and 5."""
        super().reset(seed=seed)
        self.room, self.outside = self.np_random.uniform((15.0, -5.0), (25.0, 5.0))
        self.steps = 0
        return self._observation(), {}

    def step(self, action):
        """Heat or not; reward 1 while the room is within a degree of 20."""
        self.room += 0.05 * (self.outside - self.room) + 2.0 * action
        self.steps += 1
        reward = float(abs(self.room - 20.0) < 1.0)
        truncated = self.steps == 100  # a time limit: the room does not end with it
        return self._observation(), reward, False, truncated, {}

    def _observation(self):
        return np.array([(self.room - 20.0) / 5.0, self.outside / 5.0], np.float32)


configure_gpu_optimization()
cfg = DQNConfig(total_env_steps=20_000, num_envs=4, gamma=0.9, seed=1)
result = Trainer().train_dqn(cfg, env=Thermostat)  # the class, so that the trainer can make several
print(f"return {result.evaluation.return_mean:.1f} of 100, run in {result.run_dir}")
