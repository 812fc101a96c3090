"""Small configurations of each kind of algorithm, and what a loop changes."""

import numpy as np

from kytolly.agent.algorithms import make_config

SMALL = {
    "dqn": {
        "batch_size": 8,
        "replay_capacity": 400,
        "warmup_env_steps": 40,
        "train_interval_env_steps": 8,
        "updates_per_interval": 2,
        "target_sync_updates": 5,
        "target_mix": 1.0,
    },
    "ppo": {"rollout_steps": 8, "num_minibatches": 2, "epochs": 2},
}
SMALL |= {"pqn": SMALL["ppo"]}
SMALL |= dict.fromkeys(("rainbow", "c51", "qr-dqn", "iqn", "munchausen"), SMALL["dqn"])


def small_config(algorithm="dqn", **settings):
    shared = {"algorithm": algorithm, "num_envs": 2, "hidden_units": (8,), "gamma": 0.9}
    return make_config({**shared, **SMALL[algorithm], **settings})


def state_of(loop):
    """All that a loop has changed: weights, memory, counters, environments."""
    variables = [*loop.agent.variables, *getattr(loop, "variables", ())]
    return [np.asarray(variable) for variable in variables]


def assert_same_state(loop, other):
    for a, b in zip(state_of(loop), state_of(other), strict=True):
        np.testing.assert_array_equal(a, b)
