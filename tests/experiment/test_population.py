"""`Trainer.train_population`: many agents in one program, each a run in a folder of its own."""

import json
import math
import re
import warnings

import numpy as np
import pytest

from kytolly import DQNConfig, PPOConfig, Trainer, load
from kytolly.experiment.comparison import run_folders
from kytolly.experiment.varied import program_key, varied_numbers
from kytolly.loop import lucky_choice, session
from kytolly.machine import memory

SMALL = {
    "total_env_steps": 800,
    "num_envs": 2,
    "rollout_steps": 20,
    "num_minibatches": 2,
    "epochs": 2,
    "hidden_units": (8,),
    "evaluation_interval_env_steps": 200,
    "checkpoint_interval_env_steps": 200,
    "evaluation_episodes": 2,
    "final_evaluation_episodes": 3,
    "learning_rate_final": None,
}
TABLES = ("1:0.2 0:0", "1:0.2 0.5:0.1 0:0")


def small_ppo(**changes):
    return PPOConfig(**{**SMALL, **changes})


@pytest.fixture(scope="module")
def population(tmp_path_factory):
    """Three members, of which the second cannot learn and the third does not clip."""
    folder = tmp_path_factory.mktemp("population")
    changes = [{"seed": 3}, {"seed": 4, "learning_rate": 1e30}, {"seed": 5, "clip_range": 10.0}]
    trainer = Trainer(folder / "p", progress=False)
    with pytest.warns(UserWarning, match="seed-4: .*training cannot continue"):
        results = trainer.train_population([small_ppo(**c) for c in changes], "CartPole-v1")
    return results


def test_each_member_is_a_run_in_a_folder_of_its_own(population):
    assert [result.run_dir.name for result in population] == ["seed-3", "seed-4", "seed-5"]
    for result in population[::2]:
        saved = json.loads((result.run_dir / "result.json").read_text())
        assert saved["env_steps"] == 800 and saved["seed"] == int(result.run_dir.name[-1])
        assert saved["evaluation"]["return_mean"] == result.evaluation.return_mean
        assert [row["env_steps"] for row in result.history][-1] == 800
        assert (result.run_dir / "best.keras").is_file()
    assert "clip_range: 10.0" in (population[2].run_dir / "config.yaml").read_text()
    assert len(run_folders([population[0].run_dir.parent])) == 3  # which the folder stands for


def test_agents_of_the_results_are_those_of_their_folders(population):
    obs = np.array([0.1, -0.2, 0.05, 0.3], np.float32)
    values = [float(result.agent.values(obs)) for result in population[::2]]
    assert values == [float(load(result.run_dir).values(obs)) for result in population[::2]]
    assert values[0] != values[1]


def test_members_whose_best_weights_had_luck_may_keep_their_last_ones(monkeypatch, tmp_path):
    monkeypatch.setattr(session, "LUCK", -1e9)
    monkeypatch.setattr(lucky_choice, "LOSS", -1e9)
    monkeypatch.setattr(lucky_choice, "REGAINED", 1e-9)
    often = {"evaluation_interval_env_steps": 100}
    configs = [small_ppo(seed=seed, **often) for seed in (3, 4, 5, 6, 7)]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer = Trainer(tmp_path / "p", progress=False)
        results = trainer.train_population(configs, "CartPole-v1")
    texts = "\n".join(str(warning.message) for warning in said)
    found = re.findall(r"seed-(\d): The best .* luck, and (\S+) in 3. .* return (\S+): best", texts)
    kept = {int(seed): (float(best), float(last)) for seed, best, last in found}
    assert 0 < len(kept) < 5
    obs = np.array([0.1, -0.2, 0.05, 0.3], np.float32)
    for result in results:
        seed, value = result.summary["seed"], float(load(result.run_dir).values(obs))
        assert value == float(result.agent.values(obs))
        if seed in kept:
            best, last = kept[seed]
            assert best < last == pytest.approx(result.evaluation.return_mean, abs=0.05)
            assert value == float(load(result.run_dir, weights="last").values(obs))


def test_a_member_whose_loss_is_not_finite_ends_and_the_others_go_on(population):
    assert [result.stopped_by for result in population] == [
        "total_env_steps",
        "non_finite",
        "total_env_steps",
    ]
    assert population[1].summary["env_steps"] < 800
    assert all(math.isfinite(row["loss"]) for row in population[0].history if "loss" in row)


def test_members_that_have_ended_stay_as_they_are_when_the_others_are_resumed(population):
    folder = population[0].run_dir.parent
    before = (population[0].run_dir / "result.json").read_bytes()
    configs = [small_ppo(seed=3), small_ppo(seed=4, learning_rate=1e30), small_ppo(seed=5)]
    trainer = Trainer(folder, progress=False)
    results = trainer.train_population(configs, "CartPole-v1", resume=True)
    assert [r.evaluation.return_mean for r in results] == [
        r.evaluation.return_mean for r in population
    ]
    assert results[0].history[-1]["loss"] == pytest.approx(population[0].history[-1]["loss"])
    assert (population[0].run_dir / "result.json").read_bytes() == before


@pytest.mark.parametrize(
    ("configs", "env", "message"),
    [
        ([], "CartPole-v1", "got no configs"),
        ([small_ppo()], "FrozenLake-v1", "no tensor code"),
        ([small_ppo(loop="host")], "CartPole-v1", "loop is host"),
        ([small_ppo(on_nan="restart")], "CartPole-v1", "without the others"),
        ([small_ppo(), DQNConfig()], "CartPole-v1", "ppo and dqn"),
        ([small_ppo(), small_ppo(epochs=3)], "CartPole-v1", "epochs is 2 and 3"),
        (
            [small_ppo(warmup_ratio=0.1, learning_rate=r) for r in (1, 2)],
            "CartPole-v1",
            "rises first",
        ),
        ([small_ppo(schedules={"clip_range": t}) for t in TABLES], "CartPole-v1", "of points"),
    ],
)
def test_what_cannot_be_one_program_is_refused_and_leaves_nothing(configs, env, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        Trainer(tmp_path / "p", progress=False).train_population(configs, env)
    assert not (tmp_path / "p").exists()


def test_a_population_that_does_not_fit_says_how_many_would(monkeypatch, tmp_path):
    config = DQNConfig(replay_capacity=1_000_000)  # of CartPole: 45 MB
    monkeypatch.setattr(memory, "available_bytes", lambda device: 2**28)
    with pytest.raises(ValueError, match=r"20 members would take .* 5 members would fit"):
        Trainer(tmp_path / "p").train_population([config] * 20, "CartPole-v1")


def test_configs_that_one_program_can_hold_have_one_key():
    first = small_ppo()
    assert program_key(small_ppo(seed=9, learning_rate=0.1, gae_lambda=0.5)) == program_key(first)
    assert program_key(small_ppo(epochs=7)) != program_key(first)
    falls = {"learning_rate_final": 0.0}
    assert program_key(small_ppo(learning_rate=0.1, **falls)) == program_key(small_ppo(**falls))
    assert program_key(small_ppo(**falls)) != program_key(first)
    one, other = (small_ppo(schedules={"clip_range": table}) for table in TABLES)
    assert program_key(one) == program_key(small_ppo(schedules={"clip_range": "1:0.3 0:0"}))
    assert len({program_key(one), program_key(other), program_key(first)}) == 3
    of_updates = [DQNConfig(learning_rate=rate, learning_rate_final=0.0) for rate in (1e-3, 1e-2)]
    assert program_key(of_updates[0]) == program_key(of_updates[1])


def test_members_with_schedules_of_their_own_learn_what_each_would_alone(tmp_path):
    numbers = [(1e-3, 3e-4, "1:0.2 0:0.1"), (1e-2, 0.0, "1:0.01 0:0.3")]
    configs = [
        small_ppo(
            seed=3,
            learning_rate=rate,
            learning_rate_final=final,
            schedules={"entropy_coef": "cosine", "clip_range": table},
            entropy_coef=5 * rate,
        )
        for rate, final, table in numbers
    ]
    trainer = Trainer(tmp_path / "p", progress=False)
    together = trainer.train_population(configs, "CartPole-v1")
    for number, (cfg, member) in enumerate(zip(configs, together, strict=True)):
        alone = Trainer(tmp_path / str(number), progress=False).train(cfg, "CartPole-v1")
        for name in ("loss", "learning_rate", "clip_range", "entropy_coef"):
            one, other = ([row.get(name) for row in r.history] for r in (alone, member))
            assert one == other, name
    final_rates = [member.history[-1]["learning_rate"] for member in together]
    # The last of 20 iterations begins after 95% of the run: 1e-3 - 0.95 * 7e-4, 0.05 * 1e-2.
    assert final_rates == pytest.approx([3.35e-4, 5e-4])


def test_rates_of_members_that_fall_over_updates_are_those_of_each_alone(tmp_path):
    settings = {name: SMALL[name] for name in ("total_env_steps", "hidden_units", "num_envs")}
    settings |= {"evaluation_episodes": 2, "final_evaluation_episodes": 2, "batch_size": 16}
    settings |= {"warmup_env_steps": 100, "log_interval_env_steps": 200}
    configs = [
        DQNConfig(seed=3, learning_rate=rate, learning_rate_final=final, **settings)
        for rate, final in ((1e-3, 7e-4), (1e-2, 0.0))
    ]
    trainer = Trainer(tmp_path / "p", progress=False)
    together = trainer.train_population(configs, "CartPole-v1")
    alone = Trainer(tmp_path / "one", progress=False).train(configs[1], "CartPole-v1")
    for name in ("loss", "learning_rate"):
        one, other = ([row.get(name) for row in r.history] for r in (alone, together[1]))
        np.testing.assert_array_equal(other, one, name)
    assert together[0].history[-1]["learning_rate"] == pytest.approx(7e-4, rel=0.1)


def test_schedules_share_a_program_where_their_tables_are_as_long_and_epsilon_is_the_same():
    def scheduled(name, text):
        return DQNConfig(schedules={name: text})

    rates = [scheduled("learning_rate", text) for text in ("1:0.01 0:0.001", "1:0.02 0:0")]
    longer = scheduled("learning_rate", "1:0.01 0.5:0.01 0:0.001")
    epsilons = [scheduled("epsilon", text) for text in ("1:1 0:0.1", "1:0.5 0:0.1")]
    assert program_key(rates[0]) == program_key(rates[1]) != program_key(longer)
    assert program_key(epsilons[0]) != program_key(epsilons[1])
    for pair in (epsilons, [rates[0], longer]):
        with pytest.raises(ValueError, match="schedules differ"):
            varied_numbers(pair)
