"""What an agent with a memory has in place of other agents' parts: its network and its batches."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from kytolly.agent.algorithms import part
from kytolly.agent.prioritized_replay import PrioritizedReplay
from kytolly.agent.replay_buffer import ReplayBuffer
from kytolly.agent.rollout_buffer import RolloutBuffer, Rows
from kytolly.config.dqn import DQNConfig
from kytolly.config.ppo import PPOConfig
from kytolly.config.pqn import PQNConfig
from kytolly.config.run import RunConfig
from kytolly.environment.memory import MEMORY
from kytolly.environment.memory_spec import plain_spec
from kytolly.environment.spec import EnvSpec
from kytolly.model.observation_features import make_features
from kytolly.model.recurrent import KINDS, CustomMemoryNetwork, MemoryNetwork, split_state
from kytolly.policy.base import Policy
from kytolly.policy.batch import Rollout
from kytolly.policy.sequence_q import Sequences
from kytolly.policy.sequences import by_sequence


class SequenceReplay(ReplayBuffer):
    """A replay memory of one-step rows that shows consecutive ones, beginning at any."""

    @classmethod
    def options(cls, cfg: DQNConfig, env_spec: EnvSpec) -> dict[str, Any]:
        """As for every replay; a row of a batch is a sequence."""
        return sequence_options(super().options(cfg, env_spec), cfg)

    def rows_at(self, slots: tf.Tensor) -> Any:
        """The sequences that begin at [B] slots."""
        return sequences_at(self, slots)


class PrioritizedSequences(PrioritizedReplay):
    """The same, drawn by the errors of whole sequences."""

    @classmethod
    def options(cls, cfg: DQNConfig, env_spec: EnvSpec) -> dict[str, Any]:
        """As for every prioritized replay; a row of a batch is a sequence."""
        return sequence_options(super().options(cfg, env_spec), cfg)

    def rows_at(self, slots: tf.Tensor) -> Any:
        """The sequences that begin at [B] slots."""
        return sequences_at(self, slots)


def sequence_options(options: dict[str, Any], cfg: DQNConfig) -> dict[str, Any]:
    """A replay memory's arguments, for windows of a whole sequence."""
    count = cfg.batch_size // cfg.sequence_length
    return {**options, "n_step": cfg.window_steps, "batch_size": count}


def sequences_at(memory: ReplayBuffer, slots: tf.Tensor) -> Sequences:
    """[B * W] rows of the windows that begin at [B] slots of a memory."""
    steps = memory.stride * tf.range(memory.n_step)
    window = tf.reshape((slots[:, tf.newaxis] + steps) % memory.capacity, [-1])

    def gather(column: tf.Variable) -> tf.Tensor:
        return tf.gather(column, window)

    columns = memory.columns
    obs = {name: gather(part) for name, part in columns.obs.items() if name != MEMORY}
    next_obs = {name: gather(part) for name, part in columns.next_obs.items() if name != MEMORY}
    cut = gather(memory.last)
    if memory.explored is not None:  # a return ends before a random action
        random = tf.reshape(gather(memory.explored), [-1, memory.n_step])
        cut |= tf.reshape(tf.pad(random[:, 1:], [[0, 0], [0, 1]]), [-1])
    return Sequences(
        {**obs, MEMORY: tf.gather(columns.obs[MEMORY], slots)},
        gather(columns.action),
        gather(columns.reward),
        gather(columns.discount),
        next_obs,
        cut,
    )


class SequenceRollout(RolloutBuffer):
    """A rollout's sequences in a random order, each with the memory before its first step.

    Args:
        length: Env steps of a sequence.
        num_envs: Environments of the rollout.
        state_units: Numbers of a memory that is brought up to date between epochs; 0 if none is.
        options: As for `RolloutBuffer`.
    """

    def __init__(self, *, length: int, num_envs: int, state_units: int = 0, **options: Any):
        super().__init__(**options)
        self.length, self.num_envs = length, num_envs
        self.starts: tf.Variable | None = None
        if state_units:  # [chunks * E, S] before each sequence, chunk by chunk
            shape = [self.rows_per_update * self.updates_per_epoch // length, state_units]
            self.starts = tf.Variable(tf.zeros(shape), trainable=False, name="starts")

    @classmethod
    def options(cls, cfg: PPOConfig | PQNConfig, env_spec: EnvSpec) -> dict[str, Any]:
        """As for other agents, and what a sequence is."""
        refreshed = cfg.memory_refresh and cfg.sequence_length < cfg.rollout_steps
        units = cfg.state_units if refreshed else 0
        own = {"length": cfg.sequence_length, "num_envs": cfg.num_envs, "state_units": units}
        return super().options(cfg, env_spec) | own

    def open(self, rollout: Rollout, policy: Policy) -> tuple[Any, tf.Tensor]:
        """As for every rollout, with what a refresh takes; the memories are those that acted."""
        rows, metrics = super().open(rollout, policy)
        if self.starts is None:
            return rows, metrics
        every = rollout.obs[MEMORY][:: self.length]
        self.starts.assign(tf.reshape(every, self.starts.shape))
        return Refreshable(rows, rollout.obs, policy), metrics

    def batch(self, opened: Any, index: int | tf.Tensor, random_bits: tf.Tensor) -> Rows:
        """The rows of update `index`, sequence by sequence; every one is in an epoch once."""
        count = self.rows_per_update // self.length
        chosen = self.chosen(index, count, random_bits)
        chunk, env = chosen // self.num_envs, chosen % self.num_envs
        begin = chunk * self.length * self.num_envs + env
        slots = begin[:, tf.newaxis] + self.num_envs * tf.range(self.length)
        slots = tf.reshape(slots, [-1])
        if self.starts is not None:
            later = (index > 0) & (index % self.updates_per_epoch == 0)
            tf.cond(later, lambda: self.refresh(opened.obs, opened.policy), lambda: None)
            rows: Any = self.rows(opened.rows, slots)
            memory = tf.gather(self.starts, chosen)
        else:
            rows = self.rows(opened, slots)
            memory = rows.obs[MEMORY]
            memory = tf.reshape(memory, [count, self.length, memory.shape[-1]])[:, 0]
        return rows._replace(obs={**rows.obs, MEMORY: memory})

    def refresh(self, obs: dict[str, tf.Tensor], policy: Policy) -> None:
        """Play a rollout again with the present weights, for the memory before each sequence.

        Args:
            obs: [T, E, ...] entries.
            policy: Whose weights they are.
        """
        assert self.starts is not None
        first = obs[MEMORY][0]
        last = -self.length  # after which nothing is learned from
        rows = {name: by_sequence(part[:last]) for name, part in obs.items() if name != MEMORY}
        states = policy.step({**rows, MEMORY: first}, policy.current_weights())[-1]
        after = tf.reshape(states, [self.num_envs, -1, self.length, first.shape[-1]])[:, :, -1]
        every = tf.concat([first[tf.newaxis], tf.transpose(after, [1, 0, 2])], axis=0)
        self.starts.assign(tf.reshape(every, self.starts.shape))


class Refreshable(NamedTuple):
    """An opened rollout whose memories are brought up to date between epochs."""

    rows: Any  # as every opened rollout
    obs: dict[str, tf.Tensor]  # [T, E, ...] entries
    policy: Policy


SEQUENCES: dict[str, Any] = {
    "rollout": SequenceRollout,
    "replay": SequenceReplay,
    "prioritized": PrioritizedSequences,
}


STEP_FORM = (
    "a model of one step with memory='model': call(self, obs, state, training=False), as in "
    "outputs, state = model(obs, state), with states [B, memory_units]"
)


class SequenceMemory:
    """The batches of whole sequences for a config."""

    @classmethod
    def for_config(
        cls, cfg: PPOConfig | PQNConfig | DQNConfig, env_spec: EnvSpec, noise: int = 0
    ) -> SequenceRollout | SequenceReplay | PrioritizedSequences:
        """Those of a rollout, or of a replay memory."""
        return SEQUENCES[cfg.sequence_kind].for_config(cfg, env_spec, noise)


def custom_memory_network(
    make: Callable[[EnvSpec], keras.Model], cfg: RunConfig, env_spec: EnvSpec
) -> keras.Model:
    """What gives a user's model of one step for the spec without a memory, as a network."""
    if cfg.memory != "model":
        raise ValueError(
            f"memory is {cfg.memory!r}, and a model was given, which has its own layers, expected "
            "one of one step, (obs, state) -> (outputs, state), and memory='model' with "
            "memory_units, the numbers of its state. Set these, or give no model."
        )
    made = make(plain_spec(env_spec))
    if isinstance(made, CustomMemoryNetwork):
        return made
    require_step(made)
    return CustomMemoryNetwork(made, cfg.state_units)


def require_step(model: Any) -> None:
    """Refuse a model whose call takes no state, such as every Functional or Sequential one."""
    signature = inspect.signature(model.call)
    try:
        taken = signature.bind("obs", "state").arguments
    except TypeError:
        taken = {"training": ""}
    if {"training", "mask"} & set(taken):  # in the state's place
        raise ValueError(
            f"The model {model.name!r} is a {type(model).__name__} with call{signature}, which "
            f"takes no state, expected {STEP_FORM}. Wrap it in a subclass of keras.Model with that "
            "call."
        )


def failed_step(cfg: RunConfig) -> str:
    """What to look at where a model of one step fails."""
    return (
        f". It got states of {cfg.state_units} numbers, as memory_units says, expected "
        f"{STEP_FORM}. Set memory_units to the numbers of the model's state, or change the model."
    )


def without_state(shapes: Any, network: keras.Model, cfg: RunConfig) -> Any:
    """The shapes of a network's outputs for 2 rows, without that of its state, which must fit."""
    expected = (2, cfg.state_units)
    pair = list(shapes) if isinstance(shapes, (tuple, list)) else []
    if len(pair) == 2 and pair[1] == expected:
        return pair[0]
    raise ValueError(
        f"The model {network.name!r} returns shapes {shapes} for 2 observations and states of "
        f"{expected[1]} numbers, expected (outputs, state), the state of shape {expected}: with "
        "memory='model' a model is called as model(obs, state), and memory_units says how many "
        "numbers a state has."
    )


def make_memory_network(
    cfg: PPOConfig | PQNConfig | DQNConfig, obs_spec: Any, distribution: Any
) -> keras.Model:
    """The network of a config, with a memory before its hidden layers or between them."""
    if cfg.memory == "model":
        raise ValueError(
            "memory is 'model', and no model was given, expected your own Keras model of one step, "
            "(obs, state) -> (outputs, state). Give it as Trainer.train(..., model=...), or set "
            "memory to gru, lstm or lru."
        )
    seen, _ = split_state(obs_spec)
    layout = cfg.network.removeprefix("dueling_").replace("dueling", "mlp")
    features = make_features(cfg, layout, seen)
    units = cfg.hidden_units
    encoder, hidden = ((), units) if cfg.memory_place == "before" else (units[:-1], units[-1:])
    kind = "dueling" if cfg.network.startswith("dueling") else "mlp"
    changes = {"network": kind, "normalize_observations": False, "hidden_units": hidden}
    head_cfg = copy.copy(cfg)  # of the hidden layers that follow, whatever is around them
    for name, value in changes.items():
        object.__setattr__(head_cfg, name, value)
    memory = KINDS[str(cfg.memory)](cfg.memory_units, cfg.memory_span)
    read = tf.TensorSpec([memory.units])  # of which only the rank counts
    head = part(cfg.algorithm, "network")(head_cfg, read, distribution)
    return MemoryNetwork(memory, head, features, encoder)
