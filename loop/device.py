"""Environment, exploration, memory and learning as one XLA program; evaluation as another."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from kytolly.agent.algorithms import part
from kytolly.agent.kytolly import KytollyAgent
from kytolly.agent.randomness import RandomStream, uniform
from kytolly.callback.base import Evaluation
from kytolly.config.run import RunConfig
from kytolly.environment.fusion_barrier import is_mapped, is_straight, on_gpu
from kytolly.environment.spec import EnvSpec, TensorEnvironment
from kytolly.environment.state_variable import state_variable
from kytolly.environment.tensor.stepping import (
    DeviceState,
    reset_all,
    step_and_reset,
    uniforms_per_step,
)
from kytolly.loop.columns import Arrays, Columns
from kytolly.loop.learn import LoopMetrics, learn
from kytolly.loop.limits import EpisodeLimit
from kytolly.loop.program import Program
from kytolly.policy.base import ActionReader, greedy_action, with_memory
from kytolly.policy.batch import Obs, Rollout, present, rollout_spec, with_present

EnvState: TypeAlias = tuple[DeviceState, Obs]  # between two rollouts: state, observations [E, ...]
Carried: TypeAlias = tuple[tf.Tensor, EnvState, LoopMetrics]  # iterations so far, and the rest
GPU_UNROLL = 5  # steps of the environments in a turn of a GPU's loop, at most
CALL_STEPS = 200  # of each environment, between two looks of an evaluation at the clock


class TensorEnvRunner:
    """An environment in tensor code: training and evaluation are programs on the device."""

    loop_name = "device"

    def __init__(self, env: TensorEnvironment, cfg: RunConfig):
        if cfg.memory is not None:
            from kytolly.environment.tensor.remembering import RememberingEnv

            env = RememberingEnv(env, cfg.state_units, cfg.memory_inputs)
        self.env, self.cfg, self.num_envs = env, cfg, cfg.num_envs
        self.spec: EnvSpec = env.spec._replace(truncates_at_limit_only=True)

    def loop(self, agent: KytollyAgent, device: str | None) -> DeviceLoop:
        """The loop that trains."""
        return DeviceLoop(agent, self.env, device)

    def reclaim(self) -> None:
        """Nothing: a loop that failed holds no environments."""

    def evaluator(
        self,
        network: keras.Model,
        episodes: int,
        seed: int,
        *,
        xla: bool,
        device: str | None,
        step_limit: int | None = None,
    ) -> DeviceEvaluator:
        """Plays one episode in each of `episodes` environments at once, by a Keras network."""
        distribution = part(self.cfg.algorithm, "policy").distribution_for(self.cfg, self.spec)
        limit = EpisodeLimit(self.env.spec, step_limit)
        return DeviceEvaluator(self.env, network, distribution, episodes, seed, limit, xla, device)

    def close(self) -> None:
        """Nothing to release."""


class DeviceLoop(tf.Module):
    """Steps tensor environments and their learner together, many iterations in each call.

    Args:
        agent: The learner; its state changes in place.
        env: Environment in tensor code.
        device: Where the program runs, such as "/GPU:0"; None leaves it to TensorFlow.
    """

    env_restarts = None  # tensor code has no faults to survive
    compile_seconds = 0.0  # but for the first call

    def __init__(self, agent: KytollyAgent, env: TensorEnvironment, device: str | None = None):
        super().__init__(name="device_loop")
        cfg = agent.cfg
        self.agent, self.env = agent, env
        self.num_envs, self.rollout_steps = cfg.num_envs, cfg.rollout_steps
        self.env_steps_per_iteration = cfg.env_steps_per_iteration
        acting_words = agent.exploration.num_random_words
        self.random_words_per_env_step = acting_words + uniforms_per_step(env)
        start = self.first_state(cfg.seed)
        self.env_state = tf.nest.map_structure(state_variable, start)
        self.program = Program(self._run, [tf.TensorSpec([], tf.int32)], cfg.xla, device)

    def first_state(self, seed: int) -> EnvState:
        """The environments at their beginning."""
        stream = RandomStream(seed, purpose=1)
        return reset_all(self.env, stream.uniform(self.num_envs, self.env.reset_uniforms))

    def run(self, amount: int, deadline: float = math.inf) -> LoopMetrics:
        """Train for at least `amount` env steps, in whole iterations; 0 only compiles."""
        return self.program(tf.constant(-(-amount // self.env_steps_per_iteration), tf.int32))

    def bring_up_to_date(self) -> None:
        """Nothing: the state is where checkpoints look for it."""

    def take_idle_seconds(self) -> None:
        """None: the program waits for nobody."""

    @property
    def trackables(self) -> Mapping[str, object]:
        """The state of the environments, which a checkpoint holds beside the agent."""
        return {"loop": self}

    @property
    def xla(self) -> bool:
        """True if the program is compiled with XLA; known after the first call."""
        return self.program.xla

    def close(self) -> None:
        """Nothing to release."""

    def collect(
        self, env_state: EnvState, random_bits: tf.Tensor, network_noise: tf.Tensor | None = None
    ) -> tuple[EnvState, Rollout, tf.Tensor]:
        """Step all environments `rollout_steps` times with the agent's present weights.

        Args:
            env_state: What the environments remember between two rollouts.
            random_bits: [T, E, random_words_per_env_step] uint32 words.
            network_noise: [E, N] numbers in [0, 1) of each environment for a noisy network.

        Returns:
            The state afterwards, the rollout, and [3] sums over the episodes that ended: their
            number, returns and lengths, in one tensor for the reason of `LoopMetrics.fit`.
        """
        agent, exploration = self.agent, self.agent.exploration
        noise_bits, env_bits = tf.split(random_bits, [exploration.num_random_words, -1], axis=-1)
        noise, draws = exploration.noise(noise_bits, agent.env_steps), uniform(env_bits)
        weights, row_noise = agent.policy.acting_weights(network_noise)  # once for all steps
        keeps = exploration.gives_log_prob, agent.policy.keeps_value
        num_envs = int(random_bits.shape[1] or 0)
        spec = rollout_spec(self.env.spec, num_envs, *keeps)  # what a step gives
        packs = is_straight()
        summed = [tf.TensorSpec([num_envs, 3])] * packs  # what `episodes` adds up elsewhere
        columns = kind_of_columns()([*present(spec), *summed], self.rollout_steps)

        def step(
            time: tf.Tensor, state: DeviceState, obs: Obs, arrays: Arrays, episodes: tf.Tensor
        ) -> tuple[tf.Tensor, DeviceState, Obs, Arrays, tf.Tensor]:
            # Gathered, because a slice at a tensor's place would lose its shape.
            now = tf.nest.map_structure(lambda part: tf.gather(part, time), noise)
            params, value, memory = agent.policy.step(obs, weights, noise=row_noise)
            action, log_prob = exploration.action(params, now)
            to_env = with_memory(agent.policy.distribution.to_env(action), memory)
            state, after = step_and_reset(self.env, state, to_env, tf.gather(draws, time))
            discount, next_obs = agent.discount(after.terminated), after.next_obs
            value = value if agent.policy.keeps_value else None
            row = Rollout(
                obs, action, after.reward, discount, next_obs, after.ended, log_prob, value
            )
            length = tf.cast(after.episode_length, tf.float32)
            numbers = tf.stack([tf.ones_like(length), after.episode_return, length])
            numbers = tf.where(after.ended, numbers, 0.0)
            if packs:
                arrays = columns.write(arrays, time, [*present(row), tf.transpose(numbers)])
            else:
                arrays = columns.write(arrays, time, present(row))
                episodes += tf.reduce_sum(numbers, axis=-1)
            return time + 1, state, after.obs, arrays, episodes

        # Two steps a turn are 5% faster; no gain where log-probabilities are computed as well. On a
        # GPU a turn has kernels of its own, which count, and advance, and copy.
        most = 1 if exploration.gives_log_prob or is_mapped() else 2
        most = GPU_UNROLL if on_gpu() else most
        unroll = max(n for n in range(1, most + 1) if self.rollout_steps % n == 0)

        def turn(*carried: Any) -> Any:
            for _ in range(unroll):
                carried = step(*carried)
            return carried

        _, state, obs, arrays, episodes = tf.while_loop(
            lambda time, *_: time < self.rollout_steps,
            turn,
            (tf.constant(0), *env_state, columns.arrays(), tf.zeros([3])),
        )
        stacked = columns.stack(arrays)
        if packs:
            episodes = tf.reduce_sum(stacked.pop(), axis=[0, 1])
        rollout = with_present(spec, stacked)
        if exploration.gives_explored:
            rollout = rollout._replace(explored=exploration.explored(noise))
        return (state, obs), rollout, episodes

    def _run(self, iterations: tf.Tensor) -> LoopMetrics:
        state = tf.nest.map_structure(lambda variable: variable.read_value(), self.env_state)
        carried = (tf.constant(0), state, LoopMetrics.zeros(self.agent))
        if self.agent.cfg.first_update_env_steps:
            # A loop of its own, so that no iteration has to ask: a choice copies the weights.
            warm = tf.minimum(iterations, self.iterations_before_updates())
            carried = self._iterate(carried, warm, update_enabled=False)
        _, state, metrics = self._iterate(carried, iterations, update_enabled=True)
        tf.nest.map_structure(lambda old, new: old.assign(new), self.env_state, state)
        self.agent.episodes.assign_add(tf.cast(metrics.episodes, tf.int64))
        return metrics

    def iterations_before_updates(self) -> tf.Tensor:
        """[] int32 iterations from now on that make no update."""
        missing = self.agent.cfg.first_update_env_steps - 1 - self.agent.env_steps
        return tf.cast(tf.maximum(missing, 0) // self.env_steps_per_iteration, tf.int32)

    def _iterate(self, carried: Carried, until: tf.Tensor, update_enabled: bool) -> Carried:
        def turn(done: tf.Tensor, state: EnvState, metrics: LoopMetrics) -> Carried:
            return done + 1, *self.iteration(state, metrics, update_enabled)

        return tf.while_loop(lambda done, *_: done < until, turn, carried)

    def iteration(
        self, state: EnvState, metrics: LoopMetrics, update_enabled: bool
    ) -> tuple[EnvState, LoopMetrics]:
        """Collect one rollout and learn from it: what follows a state, and the sums so far."""
        agent = self.agent
        acting = self.env_steps_per_iteration * self.random_words_per_env_step
        noise = self.num_envs * agent.policy.weights.noise_count
        learning = agent.memory.num_random_words
        # All random bits in one draw: a draw costs more than the numbers in it.
        random_bits = agent.random_stream.random_bits(acting + noise + learning)
        acting_bits, noise_bits, random_bits = tf.split(random_bits, [acting, noise, -1])
        numbers = tf.reshape(uniform(noise_bits), [self.num_envs, -1]) if noise else None
        shape = [self.rollout_steps, self.num_envs, self.random_words_per_env_step]
        acting_bits, replica = tf.reshape(acting_bits, shape), agent.policy.replica
        if replica is not None:  # of the same draws, those of its environments
            acting_bits, numbers = replica.own_draws(acting_bits, numbers)
        state, rollout, episodes = self.collect(state, acting_bits, numbers)
        if replica is not None:
            rollout, episodes = replica.all_columns(rollout, axis=1), replica.sum(episodes)
        count, returns, lengths = tf.unstack(episodes)
        metrics = metrics._replace(
            episodes=metrics.episodes + tf.cast(count, tf.int32),
            episode_return=metrics.episode_return + returns,
            episode_length=metrics.episode_length + tf.cast(lengths, tf.int32),
        )
        return state, learn(agent, rollout, random_bits, metrics, update_enabled)


def kind_of_columns() -> type[Columns]:
    """The form of a rollout's columns in the program that is traced."""
    if is_mapped():
        from kytolly.loop.mapped_columns import MappedColumns

        return MappedColumns
    if on_gpu():
        from kytolly.loop.packed_columns import PackedColumns

        return PackedColumns
    return Columns


class Episodes(NamedTuple):
    """Episodes that are played together, [E, ...] each."""

    time: tf.Tensor  # [] int32 steps so far
    state: DeviceState
    obs: Obs
    ended: tf.Tensor  # bool
    returns: tf.Tensor
    lengths: tf.Tensor  # int32


class DeviceEvaluator:
    """Plays greedily inside one program, with the network as it is at each call.

    Args:
        env: Environment in tensor code.
        network: Keras network that plays.
        distribution: Reads its outputs.
        episodes: Environments that play at once, each one episode.
        seed: Seed of the episodes, together with their number.
        limit: The longest episode.
        xla: Compile with XLA.
        device: Where the program runs; None leaves it to TensorFlow.
    """

    def __init__(
        self,
        env: TensorEnvironment,
        network: keras.Model,
        distribution: ActionReader,
        episodes: int,
        seed: int,
        limit: EpisodeLimit,
        xla: bool,
        device: str | None,
    ):
        self.env, self.network, self.distribution = env, network, distribution
        self.episodes, self.limit = episodes, limit
        self.random_stream = RandomStream(seed, purpose=2)
        self.start = self.begin()  # of which only shapes and dtypes count
        specs = map(tf.TensorSpec.from_tensor, tf.nest.flatten(self.start))
        signature = [tf.TensorSpec([], tf.int32), *specs]
        self.program = Program(self._play_until, signature, xla, device)

    def evaluate(self, number: int = 0, deadline: float = math.inf) -> Evaluation:
        """The returns and lengths of `episodes` episodes, other ones for each `number`.

        If `time.perf_counter()` passes the `deadline`, only episodes that have ended count, or,
        where none has, what all of them have reached. The clock is seen between two calls.
        """
        self.random_stream.counter.assign(number << 32)
        limit, name = self.limit.env_steps, self.env.spec.name
        steps = limit if math.isinf(deadline) else CALL_STEPS
        until, episodes, ended = 0, self.start, np.zeros(1, bool)
        while until < limit and not ended.all() and (not until or time.perf_counter() <= deadline):
            until = min(limit, until + steps)
            episodes = self.program(tf.constant(until), *tf.nest.flatten(episodes))
            ended = episodes.ended.numpy()
        returns, lengths = episodes.returns.numpy(), episodes.lengths.numpy()
        late = until < limit and not ended.all()
        if late:
            from kytolly.loop.late_evaluation import counted_in_time

            counted = counted_in_time(name, ended)
            returns, lengths = returns[counted], lengths[counted]
        elif not ended.all():
            self.limit.warn_of_cut()
        return Evaluation.of_episodes(returns, lengths, late, limit)

    def begin(self) -> Episodes:
        """New episodes."""
        draws = self.random_stream.uniform(self.episodes, self.env.reset_uniforms)
        state, obs = reset_all(self.env, draws)
        zeros = tf.zeros([self.episodes])
        return Episodes(tf.constant(0), state, obs, zeros > 0, zeros, tf.cast(zeros, tf.int32))

    def _play_until(self, until: tf.Tensor, *leaves: tf.Tensor) -> Episodes:
        """Play up to a step; step 0 stands for episodes that begin here."""
        before: Episodes = tf.nest.pack_sequence_as(self.start, leaves)
        at_start = before.time == 0
        begun = tf.nest.map_structure(
            lambda new, old: tf.where(at_start, new, old), self.begin(), before
        )

        return tf.while_loop(
            lambda now: (now.time < until) & ~tf.reduce_all(now.ended),
            lambda now: (self.step(now, self.network),),
            (begun,),
        )[0]

    def step(self, episodes: Episodes, network: Callable[[Obs], Any]) -> Episodes:
        """The episodes after one more step, with the most likely actions of a network."""
        env, (time, state, obs, ended, returns, lengths) = self.env, episodes
        action = greedy_action(network, self.distribution, obs)
        draws = self.random_stream.uniform(self.episodes, uniforms_per_step(env))
        state, after = step_and_reset(env, state, action, draws)
        returns = tf.where(ended, returns, after.episode_return)
        lengths = tf.where(ended, lengths, after.episode_length)
        return Episodes(time + 1, state, after.obs, ended | after.ended, returns, lengths)
