"""Agents and loops in the parts that the benchmarks time.

Whatever the benchmarks use of the core beyond its public names stands in this file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.agent.randomness import RandomStream, uniform
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.environment.tensor.stepping import reset_all, step_and_reset, uniforms_per_step
from kytolly.loop.device import DeviceLoop
from kytolly.loop.env_runner import make_env_runner
from kytolly.policy.batch import Rollout, Transition

TERMINATED = 0.05  # share of the made rows that end an episode


# --- loops ---------------------------------------------------------------------------------


def make_loop(cfg: Any, env: str, kind: str) -> Any:
    """A loop as `kytolly train` makes it, with an agent of its own: `loop.agent`.

    Args:
        cfg: `DQNConfig` or `PPOConfig`.
        env: Gymnasium id.
        kind: "device" or "host".
    """
    device = "/GPU:0" if tf.config.list_physical_devices("GPU") else None
    side = make_env_runner(dataclasses.replace(cfg, loop=kind), env)
    with tf.device(device):
        return side.loop(make_agent(cfg, side.spec), device)


def make_cartpole_loop(agent: Any) -> Any:
    """The device loop of an agent on CartPole."""
    return DeviceLoop(agent, CartPole())


def fetch(metrics: Any) -> Any:
    """Wait for the `LoopMetrics` of a call; returns them as NumPy values."""
    return type(metrics)(*(np.asarray(value) for value in metrics))


def metric_averages(metrics: Any, agent: Any) -> dict[str, float]:
    """Means over updates and over episodes by name, as training logs them."""
    return metrics.averages(agent)


def state_by_part(agent: Any) -> dict[str, list[Any]]:
    """Lists of variables, by part, that two runs of one seed must share."""
    policy = agent.policy
    memory = agent.memory
    policy.publish()
    parts = {"weights": [*policy.network.variables, policy.weights.vector]}
    if hasattr(policy, "target_vector"):
        parts["target"] = [policy.target_vector]
        parts["buffer"] = [*memory.columns[:5], memory.last, memory.added]
    counters = [agent.random_stream.counter, agent.env_steps, agent.episodes]
    return {**parts, "optimizer": policy.optimizer.variables, "counters": counters}


# --- learning steps ------------------------------------------------------------------------


def make_learner(cfg: Any) -> Any:
    """A DQN agent for CartPole, past its warm-up, its buffer full of random rows."""
    agent = make_agent(cfg, CartPole.spec)
    fill_buffer(agent)
    return agent


def fill_buffer(agent: Any) -> None:
    """Fill the buffer with rows to compute on; only their shapes matter for the time."""
    rng = np.random.default_rng(agent.cfg.seed)
    rows = agent.cfg.replay_capacity
    alive = rng.random(rows) >= TERMINATED
    made = Transition(
        obs=rng.normal(size=(rows, 4)).astype(np.float32),
        action=rng.integers(0, 2, rows, dtype=np.int32),
        reward=np.ones(rows, np.float32),
        discount=np.where(alive, agent.cfg.gamma, 0.0).astype(np.float32),
        next_obs=rng.normal(size=(rows, 4)).astype(np.float32),
    )
    agent.memory.add(made, ~alive)
    agent.env_steps.assign_add(rows)


def fused_updates(agent: Any, jit: bool | None) -> Callable[[int], float]:
    """A function of n that makes n updates from fresh batches in one program."""

    def update(done: Any, _: Any) -> Any:
        random_bits = agent.random_stream.random_bits(agent.cfg.batch_size)
        return done + 1, agent.policy.update(agent.memory.sample(random_bits)).loss

    def program(count: Any) -> Any:
        start = (tf.constant(0), tf.constant(0.0))
        return tf.while_loop(lambda done, _: done < count, update, start)[1]

    signature = [tf.TensorSpec([], tf.int32)]
    compiled = tf.function(program, jit_compile=jit, autograph=False, input_signature=signature)
    compiled = compiled.get_concrete_function()
    return lambda count: float(compiled(tf.constant(count)))


def numpy_buffer_update(agent: Any) -> Callable[[], float]:
    """One update from a batch that NumPy gathers on the host and that is copied to the device."""
    columns = [column.numpy() for column in agent.memory.columns[:5]]
    rng = np.random.default_rng(0)
    size = agent.cfg.batch_size
    weight = tf.ones([size])

    def update() -> float:
        slots = rng.integers(0, len(columns[0]), size)
        batch = Transition(*(tf.convert_to_tensor(column[slots]) for column in columns))
        return float(agent.policy.fit_step(batch, weight).loss)

    return update


def target_syncs(agent: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Two functions that copy the weights to the target network: on the device, by the host."""
    policy = agent.policy
    return (
        lambda: (policy.sync(), policy.target_vector.numpy()),
        lambda: policy.target_vector.assign(policy.weights.vector.numpy()),
    )


def calls_per_part(agent: Any, jit: bool | None) -> Callable[[], None]:
    """One iteration of the device loop's work, one compiled call for each part of it."""
    env = CartPole()
    stream = agent.random_stream
    cfg = agent.cfg
    draws = uniforms_per_step(env)

    def step(state: Any, action: Any) -> Any:
        numbers = tf.reshape(uniform(stream.random_bits(draws)), [1, draws])
        return step_and_reset(env, state, action, numbers)

    def act(obs: Any) -> Any:
        count = agent.exploration.num_random_words
        random_bits = tf.reshape(stream.random_bits(count), [1, 1, count])
        noise = [part[0] for part in agent.exploration.noise(random_bits, agent.env_steps)]
        params, _ = agent.policy.outputs(obs, agent.policy.current_weights())
        return agent.exploration.action(params, noise)[0]

    def remember(obs: Any, action: Any, outcome: Any) -> None:
        discount = agent.discount(outcome.terminated)
        rows = Rollout(obs, action, outcome.reward, discount, outcome.next_obs, outcome.ended)
        agent.observe(tf.nest.map_structure(lambda part: part[tf.newaxis], rows))

    parts = [tf.function(f, jit_compile=jit, autograph=False) for f in (act, step, remember)]
    act, step, remember = parts
    learn = fused_updates(agent, jit)
    first = uniform(RandomStream(0, 1).random_bits(env.reset_uniforms))
    env_state = list(reset_all(env, tf.reshape(first, [1, env.reset_uniforms])))

    def run() -> None:
        for _ in range(cfg.train_interval_env_steps):
            state, obs = env_state
            action = act(obs)
            state, outcome = step(state, action)
            remember(obs, action, outcome)
            env_state[:] = state, outcome.obs
        learn(cfg.updates_per_interval)

    return run
