"""The only place where a name becomes classes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, overload

import keras
import tensorflow as tf

from kytolly.agent.acting import HostActor, best_values, mode, to_env
from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.ppo_agent import PPOAgent
from kytolly.agent.replay_buffer import ReplayBuffer
from kytolly.config.dqn import DQNConfig
from kytolly.config.ppo import PPOConfig
from kytolly.environment.spec import ActionSpace, Box, Discrete, EnvSpec, MultiDiscrete
from kytolly.model.actor_critic_mlp import ActorCriticMLP, ObservationFeatures
from kytolly.model.ddqn_mlp import DuelingMLP
from kytolly.model.dqn_mlp import DQNMLP
from kytolly.model.nature_cnn import NatureCNN
from kytolly.policy.ddqn import DoubleDQNPolicy
from kytolly.policy.distributions import (
    Categorical,
    Distribution,
    Gaussian,
    MultiCategorical,
    SquashedGaussian,
)
from kytolly.policy.dqn import DQNPolicy
from kytolly.policy.ppo import PPOPolicy, greedy_action, without_mask

POLICIES = {"dqn": DQNPolicy, "ddqn": DoubleDQNPolicy}
ModelOrFactory = keras.Model | Callable[[EnvSpec], keras.Model] | None


@overload
def make_agent(
    cfg: DQNConfig,
    env_spec: EnvSpec,
    model: ModelOrFactory = None,
    available_bytes: int | None = None,
) -> KytollyAgent: ...


@overload
def make_agent(
    cfg: PPOConfig,
    env_spec: EnvSpec,
    model: ModelOrFactory = None,
    available_bytes: int | None = None,
) -> PPOAgent: ...


def make_agent(
    cfg: DQNConfig | PPOConfig,
    env_spec: EnvSpec,
    model: ModelOrFactory = None,
    available_bytes: int | None = None,
) -> KytollyAgent | PPOAgent:
    """An agent with its networks, optimiser and memory.

    Args:
        cfg: Settings; their class decides about the algorithm's family.
        env_spec: What the environment looks like.
        model: The user's network instead of ours: a Keras model, or a function that makes one from
            an `EnvSpec`. It maps [B, *obs] to action values [B, A] or, for PPO, to a pair:
            distribution params [B, P] and values [B].
        available_bytes: Memory that a replay buffer may take, if known.
    """
    keras.utils.set_random_seed(cfg.seed)
    previous = keras.mixed_precision.dtype_policy()
    precision = previous.name if cfg.precision == "auto" else cfg.precision
    keras.mixed_precision.set_dtype_policy(precision)
    try:
        networks = make_networks(cfg, env_spec, model)
    finally:
        keras.mixed_precision.set_dtype_policy(previous)
    optimizer = make_optimizer(cfg, scale_loss=precision == "mixed_float16")
    actor = make_actor(cfg, env_spec, networks[0])
    if isinstance(cfg, PPOConfig):
        distribution = make_distribution(env_spec.action, cfg.action_bounds)
        return PPOAgent(PPOPolicy(*networks, distribution, optimizer, cfg), cfg, env_spec, actor)
    policy = POLICIES[cfg.algorithm](*networks, optimizer, cfg, env_spec.obs)
    replay = ReplayBuffer(
        cfg.replay_capacity, env_spec.obs, cfg.num_envs, cfg.n_step, available_bytes
    )
    return KytollyAgent(policy, replay, cfg, env_spec, actor)


def make_actor(cfg: Any, env_spec: EnvSpec, network: keras.Model) -> HostActor:
    """Greedy actions of a network on the host."""
    if not isinstance(cfg, PPOConfig):
        return HostActor(network, env_spec.obs, best_values)
    distribution = make_distribution(env_spec.action, cfg.action_bounds)
    return HostActor(
        network,
        env_spec.obs,
        lambda params: to_env(distribution, mode(distribution, params)),
    )


def greedy_function(cfg: Any, env_spec: EnvSpec, network: keras.Model) -> Callable:
    """Greedy actions of a network in tensor code: [E, *obs] -> what the environment gets."""
    if not isinstance(cfg, PPOConfig):
        return lambda obs: tf.argmax(network(obs), axis=-1, output_type=tf.int32)
    distribution = make_distribution(env_spec.action, cfg.action_bounds)
    return lambda obs: greedy_action(network, distribution, obs)


def make_networks(cfg: Any, env_spec: EnvSpec, model: ModelOrFactory) -> tuple[keras.Model, ...]:
    """The built networks of a policy: PPO's one, or the online and the target network."""
    if isinstance(cfg, PPOConfig):
        return (actor_critic(cfg, env_spec, model),)
    require_discrete(cfg, env_spec)
    return q_networks(cfg, env_spec, model)


def require_discrete(cfg: DQNConfig, env_spec: EnvSpec) -> None:
    """Refuse an environment that is not for Q-learning."""
    name, algorithm = env_spec.name, cfg.algorithm
    if not isinstance(env_spec.action, Discrete):
        kind = type(env_spec.action).__name__
        raise ValueError(
            f"the actions of {name} are a {kind}, and {algorithm} needs Discrete ones. Train it "
            "with ppo, or wrap the environment in gymnasium.wrappers.DiscretizeAction (Box) or a "
            "gymnasium.wrappers.TransformAction that numbers the combinations."
        )
    if isinstance(env_spec.obs, dict):
        raise ValueError(
            f"the observations of {name} are a Dict of {', '.join(env_spec.obs)}, and {algorithm} "
            "needs one array. Train it with ppo, or wrap the environment in "
            "gymnasium.wrappers.FlattenObservation."
        )


def make_distribution(action: ActionSpace, bounds: str) -> Distribution:
    """The distribution over an environment's actions.

    Args:
        action: What the environment accepts.
        bounds: How real numbers are kept in their bounds, "clip" or "squash".

    Raises:
        ValueError: Squashing into infinite bounds.
    """
    if isinstance(action, Discrete):
        return Categorical(action.count)
    if isinstance(action, MultiDiscrete):
        return MultiCategorical(tuple(action.counts))
    if bounds == "clip":
        return Gaussian(action.low, action.high)
    if not all(map(math.isfinite, (*action.low, *action.high))):
        raise ValueError(
            f"action_bounds is 'squash', and the actions reach from {list(action.low)} to "
            f"{list(action.high)}: a squashed Gaussian needs finite bounds. Set "
            "action_bounds='clip', or wrap the environment in gymnasium.wrappers.RescaleAction."
        )
    return SquashedGaussian(action.low, action.high)


def actor_critic(cfg: PPOConfig, env_spec: EnvSpec, model: ModelOrFactory) -> keras.Model:
    """PPO's network, ours or the user's, built and checked against the environment."""
    num_params = make_distribution(env_spec.action, cfg.action_bounds).num_params
    if model is None:
        network = own_actor_critic(cfg, env_spec, num_params)
    elif isinstance(model, keras.Model):
        network = model
    elif callable(model):
        network = model(env_spec)
    else:
        raise TypeError(
            f"model is {type(model).__name__}, expected a Keras model or a function that makes "
            "one from an EnvSpec."
        )
    check_actor_critic(network, env_spec, num_params)
    if cfg.normalize_observations and not hasattr(network, "update_statistics"):
        raise ValueError(
            f"normalize_observations is set, and the model {network.name!r} has no method "
            "update_statistics(obs): put a model.normalization.RunningNormalization into it and "
            "pass its update() on, or set normalize_observations to false."
        )
    return network


def check_saved(network: keras.Model, cfg: Any, env_spec: EnvSpec) -> None:
    """Refuse a network from a file that does not fit the environment."""
    if isinstance(cfg, PPOConfig):
        distribution = make_distribution(env_spec.action, cfg.action_bounds)
        check_actor_critic(network, env_spec, distribution.num_params)
    else:
        check_network(network, env_spec)


def own_actor_critic(cfg: PPOConfig, env_spec: EnvSpec, num_params: int) -> keras.Model:
    """The network that the settings describe."""
    entries = tf.nest.flatten(without_mask(env_spec.obs))
    images = [entry for entry in entries if len(entry.shape) == 3 and entry.dtype == tf.uint8]
    convolutional = cfg.network == "cnn" or (cfg.network == "auto" and bool(images))
    features = ObservationFeatures(convolutional, cfg.normalize_observations, cfg.normalized_clip)
    free = isinstance(env_spec.action, Box) and not cfg.state_dependent_std
    return ActorCriticMLP(
        num_params,
        cfg.hidden_units,
        cfg.activation,
        cfg.shared_torso,
        free_scales=num_params // 2 if free else 0,
        scale_init=cfg.log_std_init,
        features=features,
    )


def check_actor_critic(network: keras.Model, env_spec: EnvSpec, num_params: int) -> None:
    """Build a network by calling it once; refuse one that does not give params and values."""
    seen = without_mask(env_spec.obs)
    obs = tf.nest.map_structure(lambda spec: tf.zeros([2, *spec.shape], spec.dtype), seen)
    shapes = tf.nest.map_structure(lambda spec: tuple(spec.shape), seen)
    try:
        output = network(obs)
    except Exception as error:
        raise ValueError(
            f"The model {network.name!r} fails on a batch of observations of shape {shapes}: "
            f"{first_sentence(error)}"
        ) from error
    pair = isinstance(output, (tuple, list)) and len(output) == 2
    found = [tuple(getattr(part, "shape", ())) for part in tf.nest.flatten(output)]
    if not pair or found[0] != (2, num_params) or found[1] not in ((2,), (2, 1)):
        raise ValueError(
            f"The model {network.name!r} returns shapes {', '.join(map(str, found))} for 2 "
            f"observations, expected a pair: (2, {num_params}), the parameters of the action "
            f"distribution of {env_spec.name}, and (2,), the values. For real actions the "
            "parameters are the means, then the log standard deviations."
        )


def make_optimizer(cfg: Any, scale_loss: bool) -> keras.optimizers.Optimizer:
    """Adam with the configured schedule; float16 networks need dynamic loss scaling."""
    rate = cfg.learning_rate
    if cfg.learning_rate_final is not None and isinstance(cfg, DQNConfig):
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
    text = re.sub(r"^Exception encountered when calling [\w.]+\(\)\. ", "", text)
    return text.split(". ")[0][:300].rstrip(".")
