"""Training that begins with the weights of another run."""

import json
import shutil

import numpy as np
import pytest

from kytolly.callback.base import Callback
from kytolly.command.entry import main
from kytolly.record.saved_run import SavedRun
from kytolly.trainer import Trainer
from tests.deployment.conftest import DQN, PPO, KeepWeights


class FirstWeights(Callback):
    """Keeps the weights and counts with which training begins, and may end it there."""

    def __init__(self, dies=False):
        self.dies = dies

    def on_train_begin(self, state):
        self.weights, self.count = state.network.get_weights(), (state.env_steps, state.updates)
        policy = state.trackables["agent"].policy
        self.vectors = [policy.weights.vector.numpy()]
        if hasattr(policy, "target_vector"):
            self.vectors.append(policy.target_vector.numpy())
        if self.dies:
            raise MemoryError("killed")


def begin(path, cfg, env, run, **options):
    first = FirstWeights(**options)
    Trainer(path, progress=False).train(cfg, env, [first], init=run.path)
    return first


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_run_begins_with_the_best_weights_and_statistics_of_another(pendulum, tmp_path):
    cfg = PPO | {"learning_rate": 1e-4, "seed": 9, "gamma": 0.9, "total_env_steps": 32}
    first = begin(tmp_path / "run", cfg, "Pendulum-v1", pendulum)
    best = pendulum.result.agent.policy.network.get_weights()
    assert_same(first.weights, best)
    assert first.count == (0, 0) and sum(map(np.size, best)) > first.vectors[0].size
    saved = SavedRun.existing(tmp_path / "run").read_config()
    assert saved.init == str(pendulum.path) and saved.settings["gamma"] == 0.9


def test_the_target_network_begins_with_them_too(dqn, tmp_path):
    first = begin(tmp_path / "run", DQN | {"seed": 9}, "CartPole-v1", dqn)
    assert_same(first.weights, dqn.result.agent.policy.network.get_weights())
    learned = dqn.result.agent.policy.network.trainable_variables
    flat = np.concatenate([np.ravel(weight) for weight in learned])
    assert_same(first.vectors, [flat, flat])


@pytest.mark.parametrize(
    "cfg, env, words",
    [
        (PPO, "Pendulum-v1", r"CartPole-v1 with observations .*\(4,\).*Pendulum-v1: .*\(3,\)"),
        (DQN, "Acrobot-v1", r"CartPole-v1 with observations"),
        (DQN | {"hidden_units": (9,)}, "CartPole-v1", r"weight shapes .*\(4, 8\).*\(4, 9\)"),
        (DQN | {"network": "dueling"}, "CartPole-v1", "weight shapes"),
        (DQN | {"reward_scale": 0.5}, "CartPole-v1", "with reward_scale none, expected 0.5"),
        (DQN | {"normalize_observations": False}, "CartPole-v1", "normalize_observations true"),
    ],
)
def test_other_spaces_and_networks_are_refused_before_a_folder_is_made(
    dqn, tmp_path, cfg, env, words
):
    with pytest.raises(ValueError, match=words):
        begin(tmp_path / "run", cfg, env, dqn)
    assert not (tmp_path / "run").exists()


def test_another_activation_and_other_actions_are_refused(pendulum, tmp_path):
    with pytest.raises(ValueError, match=r"activations .*'tanh'.*'relu'"):
        begin(tmp_path / "run", PPO | {"activation": "relu"}, "Pendulum-v1", pendulum)
    with pytest.raises(ValueError, match="with action_bounds scale, expected clip"):
        begin(tmp_path / "run", PPO | {"action_bounds": "clip"}, "Pendulum-v1", pendulum)
    import gymnasium
    from gymnasium.wrappers import RescaleAction

    def narrow():
        return RescaleAction(gymnasium.make("Pendulum-v1"), np.float32(-1), np.float32(1))

    with pytest.raises(ValueError, match=r"with actions Box.*expected those of Pendulum-v1: Box"):
        begin(tmp_path / "run", PPO, narrow, pendulum)


@pytest.mark.learning
def test_a_run_that_died_before_its_first_checkpoint_begins_with_them_again(dqn, tmp_path):
    path = tmp_path / "run"
    with pytest.raises(MemoryError):
        begin(path, DQN, "CartPole-v1", dqn, dies=True)
    again = FirstWeights()
    Trainer(path, progress=False).train(DQN, "CartPole-v1", [again], resume=True)
    assert_same(again.weights, dqn.result.agent.policy.network.get_weights())
    assert SavedRun.existing(path).read_config().init == str(dqn.path)


@pytest.mark.learning
def test_a_resumed_run_goes_on_with_its_own_weights(dqn, tmp_path):
    path, keeper = tmp_path / "run", KeepWeights()
    Trainer(path, progress=False).train(DQN, "CartPole-v1", [keeper], init=dqn.path)
    again = FirstWeights()
    more = DQN | {"total_env_steps": 192}
    Trainer(path, progress=False).train(more, "CartPole-v1", [again], resume=True)
    assert_same(again.weights, keeper.at[128])
    with pytest.raises(ValueError, match=r"init is .* and resume is true, expected one of them"):
        Trainer(path).train(more, "CartPole-v1", resume=True, init=dqn.path)


@pytest.fixture(scope="module")
def scaled(tmp_path_factory):
    """A run of PPO whose rewards were normalized."""
    path = tmp_path_factory.mktemp("scaled") / "run"
    cfg = PPO | {"normalize_rewards": True}
    return Trainer(path, progress=False).train(cfg, "Pendulum-v1").run_dir


class FirstScale(Callback):
    """Keeps the statistics of rewards with which training begins."""

    def on_train_begin(self, state):
        scale = state.trackables["agent"].memory.reward_scale
        self.found = [float(each) for each in (scale.mean, scale.variance, scale.count)]


def test_the_scale_of_rewards_goes_on_where_the_run_left_it(scaled, tmp_path):
    cfg, first = PPO | {"normalize_rewards": True, "seed": 9}, FirstScale()
    run = tmp_path / "run[1]"  # TensorFlow would take it for a pattern
    shutil.copytree(scaled, run)
    Trainer(tmp_path / "run", progress=False).train(cfg, "Pendulum-v1", [first], init=run)
    mean, variance, count = first.found
    assert count == pytest.approx(64.0, rel=1e-3)  # env steps of the first run
    assert mean < -1.0 and variance > 1.0  # a new scale has 0


@pytest.mark.learning
def test_a_run_without_checkpoints_says_that_the_scale_of_its_rewards_is_unknown(scaled, tmp_path):
    run, first = tmp_path / "only_best", FirstScale()
    shutil.copytree(scaled, run, ignore=shutil.ignore_patterns("checkpoints"))
    cfg = PPO | {"normalize_rewards": True}
    with pytest.warns(UserWarning, match="normalize_rewards"):
        Trainer(tmp_path / "run", progress=False).train(cfg, "Pendulum-v1", [first], init=run)
    assert first.found == [0.0, 0.0, 0.0]


def test_normalized_and_plain_rewards_are_not_mixed(scaled, pendulum, tmp_path):
    plain = Trainer(tmp_path / "plain", progress=False).train(
        PPO | {"normalize_rewards": False}, "Pendulum-v1"
    )
    for run, normalize in ((scaled, False), (plain.run_dir, True)):
        with pytest.raises(ValueError, match="normalize_rewards"):
            cfg = PPO | {"normalize_rewards": normalize}
            Trainer(tmp_path / "run", progress=False).train(cfg, "Pendulum-v1", init=run)


def test_the_scale_of_returns_goes_on_where_the_run_left_it(dqn, tmp_path):
    class Scale(Callback):
        def on_interval_end(self, state):
            self.scale = float(state.network.reward_scale)

    network, found = dqn.result.agent.policy.network, Scale()
    before = float(network.reward_scale)
    try:
        network.reward_scale.assign(before / 10)  # as after returns ten times as large
        network.save(tmp_path / "best.keras")
    finally:
        network.reward_scale.assign(before)
    run = tmp_path / "run"
    shutil.copytree(dqn.path, run)
    shutil.copy(tmp_path / "best.keras", run / "best.keras")
    Trainer(tmp_path / "new", progress=False).train(DQN, "CartPole-v1", [found], init=run)
    assert found.scale == pytest.approx(before / 10, rel=0.05)


def test_the_reference_of_ppo_kl_is_what_training_begins_with(tmp_path):
    class Reference(Callback):
        def on_train_begin(self, state):
            self.vector = state.trackables["agent"].policy.reference.numpy()

    first = Trainer(tmp_path / "a", progress=False).train(PPO, "CartPole-v1")
    cfg = PPO | {"algorithm": "ppo-kl", "seed": 9, "normalize_rewards": True}
    reference = Reference()
    Trainer(tmp_path / "b", progress=False).train(
        cfg, "CartPole-v1", [reference], init=first.run_dir
    )
    weights = first.agent.policy.network.trainable_variables
    flat = np.concatenate([np.ravel(weight) for weight in weights])
    np.testing.assert_array_equal(reference.vector, flat)


def test_the_command_begins_with_a_run(dqn, tmp_path, capsys):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SHORT.items()]
    line = ["train", "dqn", "--env", "CartPole-v1", "--no-xla", "--init", str(dqn.path), "--json"]
    assert main([*line, "--no-tuned", "--log-dir", str(tmp_path / "run"), *flags]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["env_steps"] == 64
    assert SavedRun.existing(tmp_path / "run").read_config().init == str(dqn.path)
    assert main(["train", "dqn", "--init", str(dqn.path), "--resume", str(tmp_path / "run")]) == 2
    assert "Leave --init out" in capsys.readouterr().err


SHORT = {
    "hidden_units": 8,
    "total_env_steps": 40,
    "warmup_env_steps": 20,
    "batch_size": 4,
    "replay_capacity": 200,
    "evaluation_episodes": 1,
    "final_evaluation_episodes": 1,
    "loop": "host",
}
