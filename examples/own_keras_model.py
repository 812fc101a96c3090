"""Train a Q-network of your own: `python examples/own_keras_model.py`."""

import keras

from kytolly import DQNConfig, Trainer, configure_gpu_optimization


def q_network(env_spec):
    """Return a Keras model from a batch of observations to one value for each action."""
    obs = keras.Input(env_spec.obs.shape)
    features = keras.layers.Dense(64, activation="silu")(obs)
    features = keras.layers.LayerNormalization()(features)
    features = keras.layers.Dense(64, activation="silu")(features)
    return keras.Model(obs, keras.layers.Dense(env_spec.num_actions)(features))


configure_gpu_optimization()
cfg = DQNConfig(total_env_steps=20_000, seed=1)
result = Trainer().train_dqn(cfg, env="CartPole-v1", model=q_network)
print(f"return {result.evaluation.return_mean:.1f}, run in {result.run_dir}")
