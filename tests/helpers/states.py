"""States as a trainer would hand them to callbacks, and a callback that adds metrics."""

import dataclasses

from kytolly.callback.base import Callback, Evaluation, TrainState
from kytolly.config.dqn import DQNConfig

SMALL = {
    "hidden_units": (4,),
    "num_envs": 2,
    "total_env_steps": 400,
    "warmup_env_steps": 64,
    "batch_size": 32,
    "log_interval_env_steps": 100,
    "evaluation_interval_env_steps": 200,
    "evaluation_episodes": 2,
    "final_evaluation_episodes": 2,
    "xla": False,
    "device": "cpu",
}


def make_state(run_dir, env_steps=0, evaluation_return=None, **changes):
    """A state at `env_steps`, one update for each, an evaluation of two episodes if asked for."""
    evaluation = None
    if evaluation_return is not None:
        evaluation = Evaluation(2, evaluation_return, 1.5, 20.0, (evaluation_return,) * 2)
    state = TrainState(
        run_dir=run_dir,
        config=DQNConfig(total_env_steps=1_000, warmup_env_steps=200, batch_size=32),
        env_name="CartPole-v1",
        loop="device",
        device="/device:CPU:0",
        env_steps=env_steps,
        updates=env_steps,
        evaluation=evaluation,
    )
    return dataclasses.replace(state, **changes)


def metrics_row(loss=0.5, episode_return=20.0, **others):
    """One row of metrics, as a session makes it."""
    return {
        "loss": loss,
        "td_error": 0.25,
        "q_mean": 3.0,
        "grad_norm": 1.0,
        "epsilon": 0.1,
        "episode_return": episode_return,
        "episode_length": 20.0,
        "learning_rate": 1e-3,
        "env_steps_per_second": 100.0,
        "updates_per_second": 100.0,
        **others,
    }


class Adds(Callback):
    def __init__(self, on_log=None, on_evaluation=None, on_interval_end=None):
        self.added = {"on_log": on_log, "on_evaluation": on_evaluation}
        self.added["on_interval_end"] = on_interval_end

    def on_log(self, state):
        state.metrics.update(self.added["on_log"] or {})

    def on_evaluation(self, state):
        state.metrics.update(self.added["on_evaluation"] or {})

    def on_interval_end(self, state):
        state.metrics.update(self.added["on_interval_end"] or {})
