"""Train on an environment written in tensor code: `python examples/own_tensor_environment.py`."""

import tensorflow as tf

from kytolly import DQNConfig
from kytolly.environment.spec import Discrete, EnvSpec
from kytolly.machine.configure import configure_gpu_optimization
from kytolly.trainer import Trainer


class TensorThermostat:
    """Keep rooms near 20 degrees; each is one row of the state [E, 2]: room and outside."""

    spec = EnvSpec(
        name="Thermostat",
        obs=tf.TensorSpec([2], tf.float32),
        action=Discrete(2),
        max_episode_steps=100,
    )
    reset_uniforms = 2  # random numbers in [0, 1) for each environment and reset
    step_uniforms = 0  # and for each step

    def reset(self, uniform):
        """Begin with a room between 15 and 25 degrees; outside it is between -5 and 5."""
        return tf.constant([15.0, -5.0]) + 10.0 * uniform

    def observe(self, state):
        """What the agent sees of a state."""
        return (state - tf.constant([20.0, 0.0])) / 5.0

    def step(self, state, action, uniform):
        """Heat or not; reward 1 while the room is within a degree of 20. Nothing ends it."""
        room, outside = tf.unstack(state, axis=-1)
        room += 0.05 * (outside - room) + 2.0 * tf.cast(action, tf.float32)
        reward = tf.cast(tf.abs(room - 20.0) < 1.0, tf.float32)
        return tf.stack([room, outside], axis=-1), reward, tf.zeros_like(reward) > 0.0


configure_gpu_optimization()
cfg = DQNConfig(total_env_steps=20_000, num_envs=4, gamma=0.9, seed=1)
result = Trainer().train_dqn(cfg, env=TensorThermostat())
print(f"return {result.evaluation.return_mean:.1f} of 100, run in {result.run_dir}")
