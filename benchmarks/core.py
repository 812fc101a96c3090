"""Agents and loops in the parts that the benchmarks time.

Whatever the benchmarks use of the core beyond its public names stands in this file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.agent.randomness import RandomStream, uniform
from kytolly.agent.replay_buffer import ReplayBuffer
from kytolly.config.dqn import DQNConfig
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.environment.tensor.stepping import reset_all, step_and_reset, uniforms_per_step
from kytolly.experiment.population import population_type
from kytolly.loop.device import DeviceLoop
from kytolly.loop.env_runner import make_env_runner
from kytolly.policy.batch import Rollout, Transition, map_columns
from kytolly.policy.q_learning import QLearningPolicy

if TYPE_CHECKING:
    from kytolly.agent.kytolly import KytollyAgent
    from kytolly.config.run import RunConfig
    from kytolly.environment.tensor.stepping import DeviceState, TimeStep
    from kytolly.loop.base import Loop
    from kytolly.loop.learn import LoopMetrics

TERMINATED = 0.05  # share of the made rows that end an episode


# --- loops ---------------------------------------------------------------------------------


def make_loop(cfg: RunConfig, env: str, kind: str) -> tuple[Loop, KytollyAgent]:
    """A loop as `kytolly train` makes it, with a new agent.

    Args:
        cfg: `DQNConfig` or `PPOConfig`.
        env: Gymnasium id.
        kind: "device" or "host".
    """
    device = "/GPU:0" if tf.config.list_physical_devices("GPU") else None
    runner = make_env_runner(dataclasses.replace(cfg, loop=kind), env)
    with tf.device(device):
        agent = make_agent(cfg, runner.spec)
        return runner.loop(agent, device), agent


def train_function(loop: Loop, agents: int) -> Callable[[int], LoopMetrics]:
    """A function that trains for a number of env steps, and gives what was measured.

    Args:
        loop: Of an agent.
        agents: Agents like it, each with its own random stream, that train together. All do the
            steps; what was measured is the last one's.
    """
    if agents == 1:
        return lambda env_steps: fetch(loop.run(env_steps))
    if not isinstance(loop, DeviceLoop):
        raise TypeError("only agents of the device loop train together.")
    population = population_type(loop.program.device)(loop, agents)
    for member in range(agents):
        population.select(member)
        loop.agent.random_stream.key[0].assign(member)
        population.put(member)
    return lambda env_steps: list(population.run_each(env_steps, range(agents)))[-1][1]


def make_cartpole_loop(agent: KytollyAgent) -> DeviceLoop:
    """The device loop of an agent on CartPole."""
    return DeviceLoop(agent, CartPole())


def fetch(metrics: LoopMetrics) -> LoopMetrics:
    """Wait for the `LoopMetrics` of a call; returns them as NumPy values."""
    return type(metrics)(*(np.asarray(value) for value in metrics))


def state_by_part(agent: KytollyAgent) -> dict[str, list[Any]]:
    """Lists of variables, by part, that two runs of one seed must share."""
    policy, memory = agent.policy, agent.memory
    policy.publish()
    parts = {"weights": [*policy.network.variables, policy.weights.vector]}
    if isinstance(policy, QLearningPolicy) and isinstance(memory, ReplayBuffer):
        parts["target"] = [policy.target_vector]
        parts["buffer"] = [*memory.columns[:5], memory.last, memory.added]
    counters = [agent.random_stream.counter, agent.env_steps, agent.episodes]
    return {**parts, "optimizer": policy.optimizer.variables, "counters": counters}


# --- learning steps ------------------------------------------------------------------------


class Learner(NamedTuple):
    """A DQN agent for CartPole, past its warm-up, its buffer full of random rows."""

    agent: KytollyAgent
    cfg: DQNConfig
    policy: QLearningPolicy
    memory: ReplayBuffer


def make_learner(cfg: DQNConfig) -> Learner:
    """Fill the buffer of a new agent with rows to compute on: only their shapes matter."""
    agent = make_agent(cfg, CartPole.spec)
    policy, memory = agent.policy, agent.memory
    if not isinstance(policy, QLearningPolicy) or not isinstance(memory, ReplayBuffer):
        raise TypeError(f"{type(policy).__name__} does not learn from a replay buffer.")
    rng = np.random.default_rng(cfg.seed)
    rows = cfg.replay_capacity
    alive = rng.random(rows) >= TERMINATED
    transitions = Transition(
        obs=rng.normal(size=(rows, 4)).astype(np.float32),
        action=rng.integers(0, 2, rows, dtype=np.int32),
        reward=np.ones(rows, np.float32),
        discount=np.where(alive, cfg.gamma, 0.0).astype(np.float32),
        next_obs=rng.normal(size=(rows, 4)).astype(np.float32),
    )
    memory.add(transitions, tf.constant(~alive))
    agent.env_steps.assign_add(rows)
    return Learner(agent, cfg, policy, memory)


def fused_updates(learner: Learner, jit: bool | None) -> Callable[[int], float]:
    """A function of n that makes n updates from fresh batches in one program."""

    def update(done: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        bits = learner.agent.random_stream.random_bits(learner.cfg.batch_size)
        return done + 1, learner.policy.update(learner.memory.sample(bits)).loss

    def program(count: tf.Tensor) -> tf.Tensor:
        start = (tf.constant(0), tf.constant(0.0))
        return tf.while_loop(lambda done, _: done < count, update, start)[1]

    signature = [tf.TensorSpec([], tf.int32)]
    compiled = tf.function(program, jit_compile=jit, autograph=False, input_signature=signature)
    compiled = compiled.get_concrete_function()
    return lambda count: float(compiled(tf.constant(count)))


def numpy_buffer_update(learner: Learner) -> Callable[[], float]:
    """One update from a batch that NumPy gathers on the host and that is copied to the device."""
    columns = [column.numpy() for column in learner.memory.columns[:5]]
    rng = np.random.default_rng(0)
    size = learner.cfg.batch_size
    weight = tf.ones([size])

    def update() -> float:
        slots = rng.integers(0, len(columns[0]), size)
        batch = Transition(*(tf.convert_to_tensor(column[slots]) for column in columns))
        return float(learner.policy.fit_step(batch, weight).loss)

    return update


def target_syncs(learner: Learner) -> tuple[Callable[[], object], Callable[[], object]]:
    """Two functions that copy the weights to the target network: on the device, by the host."""
    policy = learner.policy
    return (
        lambda: (policy.sync(), policy.target_vector.numpy()),
        lambda: policy.target_vector.assign(policy.weights.vector.numpy()),
    )


def calls_per_part(learner: Learner, jit: bool | None) -> Callable[[], None]:
    """One iteration of the device loop's work, one compiled call for each part of it."""
    agent, cfg = learner.agent, learner.cfg
    env = CartPole()
    stream = agent.random_stream
    draws = uniforms_per_step(env)

    def step(state: DeviceState, action: tf.Tensor) -> tuple[DeviceState, TimeStep]:
        numbers = tf.reshape(uniform(stream.random_bits(draws)), [1, draws])
        return step_and_reset(env, state, action, numbers)

    def act(obs: tf.Tensor) -> tf.Tensor:
        bits = tf.reshape(
            stream.random_bits(agent.exploration.num_random_words),
            [1, 1, agent.exploration.num_random_words],
        )
        noise = [part[0] for part in agent.exploration.noise(bits, agent.env_steps)]
        params, _ = agent.policy.outputs(obs, agent.policy.current_weights())
        return agent.exploration.action(params, noise)[0]

    def remember(obs: tf.Tensor, action: tf.Tensor, outcome: TimeStep) -> None:
        discount = agent.discount(outcome.terminated)
        rows = Rollout(obs, action, outcome.reward, discount, outcome.next_obs, outcome.ended)
        agent.observe(map_columns(lambda part: part[tf.newaxis], rows))

    parts = [tf.function(f, jit_compile=jit, autograph=False) for f in (act, step, remember)]
    act, step, remember = parts
    learn = fused_updates(learner, jit)
    first = uniform(RandomStream(0, 1).random_bits(env.reset_uniforms))
    env_state = reset_all(env, tf.reshape(first, [1, env.reset_uniforms]))

    def run() -> None:
        nonlocal env_state
        for _ in range(cfg.train_interval_env_steps):
            state, obs = env_state
            action = act(obs)
            state, outcome = step(state, action)
            remember(obs, action, outcome)
            env_state = state, outcome.obs
        learn(cfg.updates_per_interval)

    return run
