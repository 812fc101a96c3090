"""Agents of a population learn what each would alone."""

import numpy as np
import pytest
import tensorflow as tf

from kytolly.agent.make_agent import make_agent
from kytolly.agent.randomness import EVALUATION, stream_seed
from kytolly.environment.fusion_barrier import on_gpu
from kytolly.environment.tensor.acrobot import Acrobot
from kytolly.environment.tensor.cartpole import CartPole
from kytolly.environment.tensor.minatar.breakout import Breakout
from kytolly.environment.tensor.pendulum import Pendulum
from kytolly.environment.tensor.popgym import Autoencode
from kytolly.environment.tensor.t_maze import PassiveTMaze
from kytolly.loop.device import DeviceLoop, TensorEnvRunner
from kytolly.loop.mapped_population import MappedEvaluator, MappedPopulation
from kytolly.loop.member_rate import follow_member_rates
from kytolly.loop.member_state import MemberState, loop_with_state
from kytolly.loop.population import member_variables
from kytolly.loop.turns import EvaluatorInTurns, PopulationInTurns
from tests.helpers.cases import learning
from tests.helpers.on_policy_probes import DictObservation
from tests.loop.configs import small_config

SEEDS = 3, 7, 8
Q_LEARNING = {"n_step": 3, "target_sync_updates": 2, "gamma": 0.95}
CASES = {
    "ppo": ("ppo", CartPole, {"rollout_steps": 40}),
    "dqn": ("dqn", CartPole, {**Q_LEARNING, "reward_scale": None}),
    "rainbow": ("rainbow", CartPole, {}),
    "pqn": ("pqn", Breakout, {}),
    "target_kl": ("ppo", CartPole, {"target_kl": 0.0005, "learning_rate": 0.01}),
    "gaussian": ("ppo", Pendulum, {"normalize_rewards": True}),
    "dict": ("ppo", DictObservation, {}),
    "kept": ("ppo", CartPole, {"kept_rollouts": 3, "normalize_rewards": True}),
    "fraction": ("dqn", CartPole, {"updates_per_interval": 3, "train_interval_env_steps": 5}),
    "accumulation": ("dqn", Acrobot, {"gradient_accumulation": 2}),
    "fixed_rate": ("dqn", CartPole, {"learning_rate_final": None, "weight_decay": 0.01}),
    "schedules": ("dqn", CartPole, {"schedules": {"learning_rate": "1:0.01 0:0"}}),
    "c51": ("c51", CartPole, {}),
    "qr-dqn": ("qr-dqn", CartPole, {}),
    "iqn": ("iqn", CartPole, {}),
    "munchausen": ("munchausen", CartPole, {"double": True}),
    "cards": ("ppo", Autoencode.easy, {}),
    "maze": ("dqn", PassiveTMaze, {}),
}
ALWAYS = ("ppo",)


def make_loop(case, seed, device=None, **changes):
    algorithm, make_env, settings = CASES[case]
    env, cfg = make_env(), small_config(algorithm, **{**settings, **changes}, seed=seed)
    return DeviceLoop(make_agent(cfg, env.spec), env, device)


def make_population(case, kind=MappedPopulation):
    """A population of the seeds, and a loop of each seed alone."""
    loops = [make_loop(case, seed) for seed in SEEDS]
    # Only a GPU's program is mapped: its form is traced here too, and runs on the CPU.
    device = "/GPU:0" if kind is MappedPopulation else None
    population = kind(make_loop(case, SEEDS[0], device), len(SEEDS))
    for member, loop in enumerate(loops):
        for variable, value in zip(population.variables, member_variables(loop), strict=True):
            variable.assign(value)
        population.put(member)
    return population, loops


@pytest.mark.parametrize("case", [name if name in ALWAYS else learning(name) for name in CASES])
def test_members_learn_what_each_would_alone(case):
    population, loops = make_population(case)
    amount = 8 * loops[0].env_steps_per_iteration
    population.run(amount)
    metrics = population.run(amount)
    for member, loop in enumerate(loops):
        loop.run(amount)
        alone = loop.run(amount).on_host()
        population.select(member)
        for name, one, other in zip(alone._fields, alone, metrics, strict=True):
            np.testing.assert_allclose(other[member], one, rtol=1e-4, atol=1e-5, err_msg=name)
        for one, other in zip(member_variables(loop), population.variables, strict=True):
            np.testing.assert_allclose(
                np.asarray(other), np.asarray(one), rtol=1e-4, atol=1e-5, err_msg=one.name
            )
        loop.agent.policy.publish()
        network = population.agent.policy.network
        for one, other in zip(
            loop.agent.policy.network.get_weights(), network.get_weights(), strict=True
        ):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
    assert int(loops[0].agent.policy.updates) > 0


@pytest.mark.parametrize("case", ["dqn", learning("ppo"), learning("rainbow"), learning("pqn")])
def test_members_that_take_turns_learn_bit_for_bit_what_each_would_alone(case):
    population, loops = make_population(case, PopulationInTurns)
    amount = 8 * loops[0].env_steps_per_iteration
    for going in ([0, 1, 2], [0, 2]):  # one ends before the others
        for member, metrics in population.run_each(amount, going):
            alone = loops[member].run(amount).on_host()
            for one, other in zip(alone, metrics, strict=True):
                np.testing.assert_array_equal(other, one)
    for member, loop in enumerate(loops):
        population.select(member)
        for one, other in zip(member_variables(loop), population.variables, strict=True):
            np.testing.assert_array_equal(np.asarray(other), np.asarray(one), one.name)


def test_evaluations_are_those_of_each_member_alone():
    population, loops = make_population("ppo")
    seeds = [stream_seed(seed, EVALUATION) for seed in SEEDS]

    def evaluator(loop, seed):
        runner = TensorEnvRunner(loop.env, loop.agent.cfg)
        return runner.evaluator(loop.agent.policy.network, 5, seed, xla=True, device=None)

    one = evaluator(population.loop, 0)
    together = MappedEvaluator(population, one, seeds).evaluate(40, [0, 1, 2])
    alone = [evaluator(loop, seed).evaluate(40) for loop, seed in zip(loops, seeds, strict=True)]
    assert list(together.values()) == alone
    in_turns = EvaluatorInTurns(population, one, seeds).evaluate(40, [0, 2])
    assert in_turns == {0: alone[0], 2: alone[2]}
    assert len({evaluation.return_mean for evaluation in alone}) > 1


def test_what_is_mapped_on_a_gpu_has_the_bodies_of_a_gpu(monkeypatch):
    population = MappedPopulation(make_loop("ppo", 3, "/GPU:0"), 2)
    iteration, traced_for_gpu = population.loop.iteration, []

    def traced(*arguments):
        traced_for_gpu.append(on_gpu())
        return iteration(*arguments)

    monkeypatch.setattr(population.loop, "iteration", traced)
    population.run(0)
    assert set(traced_for_gpu) == {True}


@pytest.mark.parametrize("kind", [learning(MappedPopulation), PopulationInTurns])
def test_numbers_that_vary_are_those_of_their_member(kind):
    loops = [make_loop("ppo", 3) for _ in range(2)]
    population = kind(make_loop("ppo", 3), 2, {"entropy_coef": [0.0, 5.0]})
    loops[0].agent.policy.varied = lambda: {"entropy_coef": 0.0}
    loops[1].agent.policy.varied = lambda: {"entropy_coef": 5.0}
    amount = 3 * loops[0].env_steps_per_iteration
    for _ in population.run_each(amount, [0, 1]):
        pass
    for member, loop in enumerate(loops):
        loop.run(amount)
        population.select(member)
        one, other = loop.agent.policy.weights.vector, population.agent.policy.weights.vector
        np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-4, atol=1e-5)
    assert np.abs(loops[0].agent.policy.weights.vector - one).max() > 1e-3


@pytest.mark.parametrize("kind", [learning(MappedPopulation), PopulationInTurns])
@pytest.mark.parametrize("case", ["ppo", "dqn"])
def test_rates_that_fall_are_those_of_their_member(case, kind):
    """Those of PPO fall by env steps, from a number by a change; of DQN by updates, to a number."""
    falls = {"learning_rate": 0.01, "learning_rate_final": 0.001}
    loop = make_loop(case, 3, **falls)
    numbers = [(0.02, 0.01), (0.003, -0.001)]
    alone = [make_loop(case, 3, **falls) for _ in numbers]
    for one, own in zip(alone, numbers, strict=True):
        one.agent.policy.varied = lambda own=own: {"learning_rate": own}
    if case == "dqn":
        for one in (loop, *alone):
            follow_member_rates(one.agent.policy)
    rows = tuple(np.array(numbers, np.float32).T)
    population = kind(loop, 2, {"learning_rate": rows})
    amount = 8 * loop.env_steps_per_iteration
    for _ in population.run_each(amount, [0, 1]):
        pass
    for member, one in enumerate(alone):
        one.run(amount)
        population.select(member)
        found, expected = population.agent.policy, one.agent.policy
        vectors = found.weights.vector.numpy(), expected.weights.vector.numpy()
        np.testing.assert_allclose(*vectors, rtol=1e-4, atol=1e-5)
        rates = float(found.optimizer.learning_rate), float(expected.optimizer.learning_rate)
        assert rates[0] == pytest.approx(rates[1]) and rates[0] != pytest.approx(0.01)
    assert int(found.updates) > 0


def test_a_copied_member_has_all_but_its_random_stream():
    population, _ = make_population("fixed_rate", PopulationInTurns)
    for _ in population.run_each(160, [0, 1, 2]):
        pass
    population.set_number("learning_rate", [0.1, 0.2, 0.3])
    population.copy([2, 1, 2])
    values = []
    for member in (0, 2):
        population.select(member)
        agent = population.agent
        assert float(agent.policy.optimizer.learning_rate) == pytest.approx(0.3)
        values.append([np.asarray(v) for v in agent.memory.variables + agent.policy.variables])
        assert int(agent.random_stream.key[0]) == SEEDS[member]
    for one, other in zip(*values, strict=True):
        np.testing.assert_array_equal(one, other)


def test_replaced_variables_are_tensors_and_the_variables_stay():
    count, table = tf.Variable(1), tf.Variable([1.0, 2.0])
    state = MemberState([count, table])
    with state.replaced([tf.constant(5), tf.constant([3.0, 4.0])]):
        count.assign_add(1)
        table.scatter_nd_update([[0]], [9.0])
        table.assign_sub([1.0, 1.0])
        (turns,) = loop_with_state(
            lambda turn: turn < 3, lambda turn: (count.assign_add(10) * 0 + turn + 1,), (0,)
        )
        assert float(tf.gather(table, 1)) == 3.0
    assert turns == 3 and [value.numpy().tolist() for value in state.values] == [36, [8.0, 3.0]]
    assert count.numpy() == 1 and table.numpy().tolist() == [1.0, 2.0]
    with pytest.raises(tf.errors.InvalidArgumentError), state.replaced(state.values):
        table.assign([1.0])
    assert table.assign([5.0, 6.0]).numpy().tolist() == [5.0, 6.0]
