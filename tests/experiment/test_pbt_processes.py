"""Population-based training by processes: rounds, checkpoints of parents, and what is resumed."""

import json

import numpy as np
import pytest
import tensorflow as tf

from kytolly.experiment import pbt_member
from kytolly.experiment.pbt_member import take_learned
from kytolly.experiment.pbt_processes import MemberProcesses
from kytolly.record.checkpoint import checkpoints, complete_checkpoint
from kytolly.trainer import Trainer
from tests.helpers.commands import SHORT, SHORT_PPO, kytolly, start_here

PBT = ["--pbt", "--population", "3", "--json"]
PPO = ["train", "ppo", "--env", "CartPole-v1", *SHORT_PPO[:-3], "2", *PBT]
PPO += ["--evaluation-interval-env-steps", "75", "--interval", "60"]
DQN = ["train", "dqn", "--env", "CartPole-v1", "--loop", "host", *SHORT, *PBT, "--interval", "90"]


@pytest.fixture
def children(monkeypatch, tmp_path):
    """Children run in this process; the words of each."""
    ran = []

    def start(child, threads):
        ran.append(list(child.words))
        start_here(child, threads)

    plain = MemberProcesses.__init__

    def init(self, pbt, environment, folders, report, jobs):
        plain(self, pbt, environment, folders, report, 1, start)

    monkeypatch.setattr(MemberProcesses, "__init__", init)
    monkeypatch.chdir(tmp_path)
    return ran


def events(folder):
    return [json.loads(line) for line in (folder / "pbt.jsonl").read_text().splitlines()]


def tensors_of(checkpoint):
    """The numbers in a checkpoint by name."""
    reader = tf.train.load_checkpoint(str(checkpoint))
    found = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    return {
        name: np.asarray(value) for name, value in found.items() if not isinstance(value, bytes)
    }


def newest(run_dir):
    """The newest checkpoint in a run's folder, without the endings of its files."""
    return checkpoints(run_dir / "checkpoints")[0][1]


def test_members_in_processes_decide_as_those_in_one_program(children, tmp_path):
    whole = kytolly(*PPO, "--log-dir", "whole", cwd=tmp_path)
    apart = kytolly(*PPO, "--apart", "--log-dir", "apart", cwd=tmp_path)
    assert whole.status == apart.status == 0, apart.errors
    assert len(children) == 6  # three members, two rounds
    (one,), (other,) = events(tmp_path / "whole"), events(tmp_path / "apart")
    assert one == other and one["sources"] != [0, 1, 2]
    first, second = json.loads(whole.out), json.loads(apart.out)
    assert [m["return"] for m in first["members"]] == [m["return"] for m in second["members"]]
    assert first["schedules"] == second["schedules"]


def test_a_weak_member_gets_all_that_was_learned_and_keeps_its_random_stream(
    children, monkeypatch, tmp_path
):
    taken = []

    def take(trackables, checkpoint):
        agent, loop = trackables["agent"], trackables["host"].loop
        before = loop.restored
        take_learned(trackables, checkpoint)
        # The environments go on with their episodes, by the weights that the parent acts with.
        assert loop.restored["collectors"] == before["collectors"]
        assert loop.restored["acting"] != before["acting"]
        assert agent.policy.optimizer.learning_rate == np.float32(agent.cfg.learning_rate)
        complete_checkpoint(trackables).write(str(tmp_path / "after"))
        after, parent = (tensors_of(path) for path in (tmp_path / "after", checkpoint))
        other = {name for name in after if (after[name] != parent[name]).any()}
        own = ("random_stream/key", "episodes", "optimizer/_learning_rate", "memory/")
        assert all(any(word in name for word in own) for name in other), other
        assert sum("memory/" in name for name in other) == 1  # which of its rows end an episode
        taken.append((checkpoint.resolve(), int(agent.random_stream.key[0])))

    monkeypatch.setattr(pbt_member, "take_learned", take)
    done = kytolly(*DQN, "--log-dir", "g", cwd=tmp_path)
    assert done.status == 0, done.errors
    (event,) = events(tmp_path / "g")
    (weak,) = (m for m in range(3) if event["sources"][m] != m)
    checkpoint = tmp_path / f"g/seed-{weak}/parent/ckpt-{event['env_steps']}"
    assert taken == [(checkpoint, weak)]
    rate = event["numbers"]["learning_rate"][weak]
    (words,) = (w for w in children if "--resume" in w and f"g/seed-{weak}" in w)
    assert words[words.index("--learning-rate") + 1] == repr(rate)
    assert not checkpoint.parent.exists()


@pytest.mark.learning
def test_a_training_that_was_killed_in_a_round_goes_on_to_the_same_end(
    children, monkeypatch, tmp_path
):
    whole = kytolly(*PPO, "--apart", "--log-dir", "whole", cwd=tmp_path)

    def start(child, threads):
        children.append(list(child.words))
        if len(children) == 6 + 5:  # one member of the second round has ended
            raise KeyboardInterrupt
        start_here(child, threads)

    original = MemberProcesses.__init__
    with monkeypatch.context() as patch:

        def init(self, *arguments):
            original(self, *arguments)
            self.start = start

        patch.setattr(MemberProcesses, "__init__", init)
        stopped = kytolly(*PPO, "--apart", "--log-dir", "stopped", cwd=tmp_path)
    assert stopped.status == 130 and "--pbt --resume stopped" in stopped.errors
    done = kytolly("train", "ppo", "--pbt", "--resume", "stopped", "--json", cwd=tmp_path)
    assert done.status == 0, done.errors
    assert len(children) == 6 + 5 + 2
    assert events(tmp_path / "stopped") == events(tmp_path / "whole")
    first, second = json.loads(whole.out), json.loads(done.out)
    assert [m["return"] for m in first["members"]] == [m["return"] for m in second["members"]]
    for member in range(3):
        folders = [tmp_path / name / f"seed-{member}" for name in ("stopped", "whole")]
        ours, theirs = (tensors_of(newest(folder)) for folder in folders)
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def test_what_is_wrong_for_every_member_leaves_nothing(children, tmp_path):
    bad = kytolly(*DQN[:3], "Nothing-v1", *DQN[4:], "--log-dir", "g", cwd=tmp_path)
    assert bad.status == 2 and "unknown environment 'Nothing-v1'" in bad.errors
    assert len(children) == 1 and not (tmp_path / "g").exists()


@pytest.mark.learning
def test_a_member_that_fails_is_left_out(children, monkeypatch, tmp_path):
    plain = Trainer.train

    def train(self, cfg, *arguments, **options):
        if cfg.seed == 1 and options["resume"]:
            raise ValueError("seed 1 is unlucky")
        return plain(self, cfg, *arguments, **options)

    monkeypatch.setattr(Trainer, "train", train)
    done = kytolly(*DQN, "--log-dir", "g", cwd=tmp_path)
    assert done.status == 1 and "seed-1: seed 1 is unlucky\nseed-1: failed\n" in done.errors
    assert [m["return"] is None for m in json.loads(done.out)["members"]] == [False, True, False]
