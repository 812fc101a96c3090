"""Tiny runs of many kinds, which together save every part of a run's state."""

import dataclasses
from collections.abc import Callable
from typing import Any

import gymnasium
import keras
import numpy as np

from kytolly.environment.spec import num_choices
from tests.environment.masked import Masked

WRAPPERS = gymnasium.wrappers
COMMON = {
    "total_env_steps": 400,
    "hidden_units": [4],
    "learning_rate": 0.01,
    "evaluation_episodes": 2,
    "final_evaluation_episodes": 2,
    "log_interval_env_steps": 40,
    "evaluation_interval_env_steps": 80,
    "checkpoint_interval_env_steps": 80,
}
OWN = {
    "dqn": {
        "batch_size": 8,
        "replay_capacity": 64,
        "warmup_env_steps": 8,
        "train_interval_env_steps": 4,
        "updates_per_interval": 1,
    },
    "ppo": {
        "num_envs": 2,
        "rollout_steps": 10,
        "num_minibatches": 2,
        "epochs": 2,
        "normalize_observations": True,
        "normalize_rewards": True,
    },
}
DQN, PPO = (COMMON | {"algorithm": name} | own for name, own in OWN.items())
HOST = {"loop": "host"}
MEMORY = {"memory": "gru", "memory_units": 3, "memory_length": 4, "memory_burn_in": 2, "n_step": 2}


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run is made of; `env` and `model` are as `Trainer.train` takes them."""

    config: dict[str, Any]
    env: Any = "CartPole-v1"
    model: Callable[..., keras.Model] | None = None

    def options(self) -> dict[str, Any]:
        return {} if self.model is None else {"model": self.model}


class Pictures(gymnasium.Env):
    """A picture [8, 8, 1] with a bright column, to which the action moves; no end of its own."""

    observation_space = gymnasium.spaces.Box(0, 255, (8, 8, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(8))
        return self._picture(), {}

    def step(self, action):
        self.place = (self.place + int(action) - 1) % 8
        lucky = self.np_random.random() < 0.1
        return self._picture(), float(self.place == 3), lucky, False, {}

    def _picture(self):
        picture = np.zeros((8, 8, 1), np.uint8)
        picture[:, self.place] = 255
        return picture


def pictures():
    return WRAPPERS.TimeLimit(Pictures(), 20)


def wrapped():
    def make():  # not a function of this file, which would take Keras into an environment's process
        env = WRAPPERS.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))
        env = WRAPPERS.NormalizeReward(WRAPPERS.NormalizeObservation(env))
        return WRAPPERS.FrameStackObservation(env, 3)

    return make


def vector(mode):
    return lambda: gymnasium.make_vec(
        "CartPole-v1",
        2,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode(mode)},
    )


def own_q_network(spec):
    """Without a NumPy twin; dropout has a random state of its own."""
    obs = keras.Input(spec.obs.shape)
    x = keras.layers.Dropout(0.5, seed=1)(keras.layers.Dense(8, "gelu")(obs))
    return keras.Model(obs, keras.layers.Dense(num_choices(spec.action))(x))


def own_actor_critic(spec):
    obs = keras.Input(spec.obs.shape)
    x = keras.layers.LayerNormalization()(keras.layers.Dense(8, "gelu")(obs))
    value = keras.layers.Dense(1)(x)
    return keras.Model(obs, [keras.layers.Dense(num_choices(spec.action))(x), value])


RUNS = {
    "dqn-device": Run(DQN | {"n_step": 2}),
    "dqn-host": Run(DQN | {"n_step": 2} | HOST),
    "ppo-device": Run(PPO),
    "ppo-host": Run(PPO | HOST),
}
VARIANTS = {
    "dqn in processes": Run(DQN | HOST | {"num_envs": 3, "n_step": 3, "async_envs": True}),
    "ppo in two groups of processes": Run(PPO | HOST | {"num_envs": 4, "async_envs": True}),
    "wrapped, in processes": Run(DQN | HOST | {"num_envs": 2, "async_envs": True}, wrapped()),
    "ddqn, three environments, three steps": Run(
        DQN
        | HOST
        | {"algorithm": "ddqn", "network": "dueling", "num_envs": 3, "n_step": 3}
        | {"learning_rate_final": 0.001, "target_mix": 0.1, "target_sync_updates": 1}
    ),
    "weights that act lag by three iterations": Run(
        DQN | HOST | {"acting_interval_env_steps": 12, "xla": False}
    ),
    "a convolutional network": Run(DQN | HOST, pictures),
    "ppo with a convolutional network": Run(
        PPO | HOST | {"normalize_observations": False}, pictures
    ),
    "an own network with dropout": Run(DQN | HOST, model=own_q_network),
    "ppo with an own network": Run(
        PPO | HOST | {"normalize_observations": False}, model=own_actor_critic
    ),
    "wrapped": Run(DQN | HOST | {"n_step": 3}, wrapped()),
    "ppo, wrapped": Run(PPO | HOST, wrapped()),
    "masks in the observation": Run(PPO | HOST, lambda: Masked("entry")),
    "masks from a method": Run(PPO | HOST, lambda: Masked("method", one_array=True)),
    "continuous actions": Run(
        PPO
        | HOST
        | {"noise_correlation": 0.5, "action_bounds": "squash", "num_envs": 3}
        | {"state_dependent_std": True, "target_kl": 0.001, "total_env_steps": 1_200}
        | {"log_interval_env_steps": 60, "evaluation_interval_env_steps": 300}
        | {"checkpoint_interval_env_steps": 240, "rollout_steps": 20},
        "Pendulum-v1",
    ),
    "a vector that resets in the next step": Run(PPO | HOST, vector("NextStep")),
    "dqn, a vector that resets in the next step": Run(
        DQN | HOST | {"num_envs": 2, "n_step": 2}, vector("NextStep")
    ),
    "a vector that is reset by us": Run(PPO | HOST, vector("Disabled")),
    "an environment that exists": Run(
        DQN | HOST, gymnasium.make("Acrobot-v1", max_episode_steps=30)
    ),
    "stopped early": Run(DQN | HOST | {"early_stop_patience": 2, "total_env_steps": 2_000}),
    "stopped at a threshold": Run(
        PPO | HOST | {"reward_threshold": 45.0, "total_env_steps": 2_000}
    ),
    "ppo with a memory": Run(PPO | {"memory": "gru", "memory_units": 3, "memory_inputs": True}),
    "dqn with a memory, prioritized": Run(DQN | MEMORY | {"memory": "lru", "prioritized": True}),
    "ppo with a memory, a vector that resets in the next step": Run(
        PPO | HOST | {"memory": "lstm", "memory_units": 3, "memory_length": 5}, vector("NextStep")
    ),
    "dqn with a memory on the host": Run(
        DQN | HOST | MEMORY | {"num_envs": 2, "memory_inputs": True}
    ),
    "half precision": Run(DQN | HOST | {"precision": "mixed_bfloat16"}),
}
RUNS |= VARIANTS
