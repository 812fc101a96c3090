"""No two evaluations, of one run or of neighboring ones, play the same episodes."""

from kytolly.agent.randomness import stream_seed
from kytolly.environment.gym import adapter
from kytolly.loop import host_env_runner
from kytolly.trainer import Trainer

TINY = {"algorithm": "dqn", "loop": "host", "xla": False, "hidden_units": [4], "batch_size": 8}
TINY |= {"warmup_env_steps": 64, "total_env_steps": 64, "evaluation_interval_env_steps": 32}
TINY |= {"evaluation_episodes": 2, "final_evaluation_episodes": 2}


def test_neighboring_runs_train_and_evaluate_with_other_seeds(tmp_path, monkeypatch):
    seeds = []

    def watch(make):
        def watched(*args, seed, **options):
            seeds.append(seed)
            return make(*args, seed=seed, **options)

        return watched

    monkeypatch.setattr(host_env_runner, "make_host_env", watch(adapter.make_host_env))
    monkeypatch.setattr(host_env_runner, "make_host_groups", watch(adapter.make_host_groups))
    for seed in (3, 4):
        trainer = Trainer(tmp_path / str(seed), progress=False)
        trainer.train({**TINY, "seed": seed}, "CartPole-v1")
    # each: the environments that train, 2 evaluations and the last one
    assert len(seeds) == 8 and len(set(seeds)) == 8


def test_seeds_of_streams_differ_by_seed_purpose_and_number():
    seeds = [stream_seed(s, p, n) for s in range(20) for p in range(1, 6) for n in range(20)]
    assert len(set(seeds)) == len(seeds) and max(seeds) < 2**32
