"""The only place where a name becomes classes."""

from __future__ import annotations

import re
from collections.abc import Callable

import keras
import tensorflow as tf

from agent.kytolly import KytollyAgent
from agent.replay_buffer import ReplayBuffer
from config import DQNConfig
from environment.spec import EnvSpec
from model.ddqn_mlp import DuelingMLP
from model.dqn_mlp import DQNMLP
from model.nature_cnn import NatureCNN
from policy.ddqn import DoubleDQNPolicy
from policy.dqn import DQNPolicy

POLICIES = {"dqn": DQNPolicy, "ddqn": DoubleDQNPolicy}
ModelOrFactory = keras.Model | Callable[[EnvSpec], keras.Model] | None


def make_agent(
    cfg: DQNConfig,
    env_spec: EnvSpec,
    model: ModelOrFactory = None,
    available_bytes: int | None = None,
) -> KytollyAgent:
    """An agent with its networks, optimiser and buffer.

    Args:
        cfg: Settings.
        env_spec: What the environment looks like.
        model: The user's Q-network instead of ours: a Keras model [B, *obs] -> [B, A], or a
            function that makes one from an `EnvSpec`.
        available_bytes: Memory that the replay buffer may take, if known.
    """
    keras.utils.set_random_seed(cfg.seed)
    previous = keras.mixed_precision.dtype_policy()
    precision = previous.name if cfg.precision == "auto" else cfg.precision
    keras.mixed_precision.set_dtype_policy(precision)
    try:
        online, target = q_networks(cfg, env_spec, model)
    finally:
        keras.mixed_precision.set_dtype_policy(previous)
    optimizer = make_optimizer(cfg, scale_loss=precision == "mixed_float16")
    policy = POLICIES[cfg.algorithm](online, target, optimizer, cfg, env_spec.obs)
    replay = ReplayBuffer(
        cfg.replay_capacity, env_spec.obs, cfg.num_envs, cfg.n_step, available_bytes
    )
    return KytollyAgent(policy, replay, cfg, env_spec)


def make_optimizer(cfg: DQNConfig, scale_loss: bool) -> keras.optimizers.Optimizer:
    """Adam with the configured schedule; float16 networks need dynamic loss scaling."""
    rate = cfg.learning_rate
    if cfg.learning_rate_final is not None:
        env_steps = cfg.total_env_steps - cfg.warmup_env_steps
        updates = env_steps * cfg.updates_per_interval / cfg.train_interval_env_steps
        rate = keras.optimizers.schedules.PolynomialDecay(
            cfg.learning_rate, max(1, int(updates)), cfg.learning_rate_final
        )
    adam = keras.optimizers.Adam(rate, epsilon=cfg.adam_epsilon)
    return keras.optimizers.LossScaleOptimizer(adam) if scale_loss else adam


def q_networks(
    cfg: DQNConfig, env_spec: EnvSpec, model: ModelOrFactory
) -> tuple[keras.Model, keras.Model]:
    """Two built networks of one architecture, checked against the environment."""
    if model is None:
        online, target = own_network(cfg, env_spec), own_network(cfg, env_spec)
    elif isinstance(model, keras.Model):
        online, target = model, copied(model)
    elif callable(model):
        online, target = model(env_spec), model(env_spec)
    else:
        raise TypeError(
            f"model is {type(model).__name__}, expected a Keras model or a function that makes "
            "one from an EnvSpec."
        )
    for network in (online, target):
        check_network(network, env_spec)
    return online, target


def own_network(cfg: DQNConfig, env_spec: EnvSpec) -> keras.Model:
    """The network that `cfg.network` names; `auto` takes the convolutional one for images."""
    image = len(env_spec.obs.shape) == 3 and env_spec.obs.dtype == tf.uint8
    kind = cfg.network if cfg.network != "auto" else ("cnn" if image else "mlp")
    torso = NatureCNN() if kind.endswith("cnn") else None
    network = DuelingMLP if kind.startswith("dueling") else DQNMLP
    return network(env_spec.num_actions, cfg.hidden_units, torso)


def copied(model: keras.Model) -> keras.Model:
    """A second model of the same architecture, with weights of its own."""
    try:
        if hasattr(model, "inputs"):
            return keras.models.clone_model(model)
        return type(model).from_config(model.get_config())
    except (NotImplementedError, TypeError, ValueError) as error:
        raise ValueError(
            f"The target network needs a second {type(model).__name__}, and Keras cannot copy "
            f"this one ({first_sentence(error)}). Give `model` a function that makes one, "
            "`model=lambda env_spec: MyModel(...)`, or define get_config()."
        ) from error


def check_network(network: keras.Model, env_spec: EnvSpec) -> None:
    """Build a network by calling it once; refuse one whose output is not [B, A]."""
    shape, actions = tuple(env_spec.obs.shape), env_spec.num_actions
    try:
        output = network(tf.zeros([2, *shape], env_spec.obs.dtype))
    except Exception as error:
        raise ValueError(
            f"The model {network.name!r} fails on a batch of observations of shape {shape}, "
            f"dtype {env_spec.obs.dtype.name}: {first_sentence(error)}"
        ) from error
    found = tuple(getattr(output, "shape", ()))
    if found != (2, actions):
        raise ValueError(
            f"The model {network.name!r} returns shape {found} for 2 observations, expected "
            f"(2, {actions}): one value for each of the {actions} actions of {env_spec.name}. "
            f"Let its last layer be keras.layers.Dense({actions})."
        )


def first_sentence(error: Exception) -> str:
    """What Keras says first: no terminal colours, no advice, one line."""
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())
    return text.split(". ")[0][:300].rstrip(".")
