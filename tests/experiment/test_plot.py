"""`kytolly plot`: what belongs together, what it is called, its numbers, and its picture."""

import json

import numpy as np
import pytest

from kytolly.command.entry import main
from kytolly.experiment import seed_statistics
from kytolly.experiment.comparison import GROUP_FILE, make_groups, read_runs, run_folders
from kytolly.experiment.plots import plot_comparison
from tests.helpers.written_runs import write_run


def groups_of(paths, group=True):
    return make_groups(read_runs(run_folders(paths))[0], group)


def shown_lines(figure):
    """Of every panel: the label and the values of each line."""
    return [{line.get_label(): list(line.get_ydata()) for line in ax.lines} for ax in figure.axes]


def test_seeds_are_one_line_of_their_interquartile_mean_and_other_settings_another(tmp_path):
    paths = [write_run(tmp_path / f"a{s}", [10, v], seed=s) for s, v in enumerate([20, 0, 40, 999])]
    paths += [write_run(tmp_path / f"b{s}", [1, 2 + s], seed=s, gamma=0.9) for s in range(2)]
    first, second = groups_of(paths)
    assert (first.label, second.label) == ("gamma 0.99", "gamma 0.9")
    figure = plot_comparison([first, second], "evaluation_return_mean", "env_steps")
    # Of four values the lowest and the highest go: (20 + 40) / 2; the mean would be 264.75.
    assert shown_lines(figure) == [
        {"gamma 0.99 (4 seeds)": [10, 30], "gamma 0.9 (2 seeds)": [1, 2.5]}
    ]
    assert len(figure.axes[0].collections) == 2  # bands


def test_the_numbers_are_of_the_last_and_of_the_best_evaluation(tmp_path, capsys):
    paths = [write_run(tmp_path / f"r{s}", [5, 50 + s, 7 + s], seed=s) for s in range(4)]
    out = tmp_path / "new" / "p.png"
    assert main(["plot", *map(str, paths), "--group", "--out", str(out), "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    (group,) = found["groups"]
    assert group["label"] == "ppo" and found["unit"] == "env_steps" and found["plot"] == str(out)
    assert group["last"]["values"] == [7, 8, 9, 10] and group["best"]["values"] == [50, 51, 52, 53]
    assert group["last"]["interquartile_mean"] == 8.5
    low, high = group["last"]["interval"]
    assert 7 <= low < 8.5 < high <= 10 and "51.5 (" in printed.err
    assert out.read_bytes().startswith(b"\x89PNG")


def test_the_best_loss_is_the_lowest(tmp_path, capsys):
    path, out = write_run(tmp_path / "r", [5, 6, 7, 8]), str(tmp_path / "p.png")
    assert main(["plot", str(path), "--metric", "loss", "--out", out, "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert group["best"]["values"] == [0.25] and group["label"] == "r"


def test_a_band_holds_the_interval_of_every_moment():
    values = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0], [10.0, 5.0]])
    low, high = seed_statistics.interval(values, resamples=500)
    assert (low[0], high[0]) == seed_statistics.interval(values[:, 0], resamples=500)
    assert (low[1], high[1]) == (5, 5) and 1 <= low[0] < 2.5 < high[0] <= 10


def test_the_probability_of_improvement_counts_equal_values_half():
    x, y = [3.0, 5.0, 5.0], [1.0, 5.0]
    # Pairs of x with 1: three wins; with 5: a loss and two equal ones. (3 + 2 / 2) / 6.
    assert seed_statistics.probability_of_improvement(x, y) == pytest.approx(4 / 6)
    assert seed_statistics.probability_of_improvement(y, x) == pytest.approx(2 / 6)
    several = seed_statistics.probability_of_improvement(np.array([x, [9, 9, 9]]), np.array([y, y]))
    np.testing.assert_allclose(several, [4 / 6, 1])


def test_the_difference_is_that_of_the_interquartile_means():
    # (10 + 20) / 2 - (2 + 3) / 2; the means differ by 255.
    assert seed_statistics.iqm_difference([0, 10, 20, 1000], [1, 2, 3, 4]) == 12.5


def test_the_seeds_of_two_groups_are_drawn_independently():
    pair, statistic = ([0.0, 1.0], [0.0, 1.0]), seed_statistics.probability_of_improvement
    # All of x is 1 and all of y is 0 in one of 16 draws, more than 2.5%. Had both the same draws,
    # the probability would be 0.5 in each.
    assert seed_statistics.difference_interval([pair], statistic) == (0, 1)
    # Means over two tasks: both at an end are one draw of 256, so 0 and 1 are outside.
    low, high = seed_statistics.difference_interval([pair, pair], statistic)
    assert (low, high) == (0.125, 0.875)


def test_an_improvement_is_the_mean_over_tasks_and_a_lower_loss():
    better, equal = ([3.0, 4.0], [1.0, 2.0]), ([1.0, 2.0], [1.0, 2.0])
    found = seed_statistics.improvement([better, equal])
    assert found["probability_of_improvement"] == 0.75
    low, high = found["probability_interval"]
    assert (low, high) == (0.5, 1)  # 1 in the first task, 0 or 1 in the second
    assert seed_statistics.improvement([better], True)["probability_of_improvement"] == 0


def test_two_algorithms_are_compared_in_each_environment_and_over_all(tmp_path, capsys):
    returns = {
        ("dqn", "CartPole-v1"): [1, 2, 3, 4],
        ("ppo", "CartPole-v1"): [10, 20, 30, 2],
        ("dqn", "Acrobot-v1"): [-90, -90],
        ("ppo", "Acrobot-v1"): [-90, -80],
    }
    paths = [
        write_run(tmp_path / f"{a}{e}{s}", [99, v], seed=s, algorithm=a, environment=e)
        for (a, e), values in returns.items()
        for s, v in enumerate(values)
    ]
    words = ["plot", *map(str, paths), "--out", str(tmp_path / "p.png"), "--json"]
    assert main([*words, "--group"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)["comparisons"]
    assert [(one["label"], one["baseline"], one["environment"]) for one in found] == [
        ("ppo", "dqn", "CartPole-v1"), ("ppo", "dqn", "Acrobot-v1"), ("ppo", "dqn", None),
    ]  # fmt: skip
    cartpole, acrobot, both = (one["last"] for one in found)
    # (10 + 20) / 2 - (2 + 3) / 2. 10, 20 and 30 beat all four; 2 beats 1 and equals 2.
    assert cartpole["difference"] == 12.5
    assert cartpole["probability_of_improvement"] == pytest.approx(13.5 / 16)
    low, high = cartpole["difference_interval"]
    assert low < 12.5 < high <= 28  # 30 - 2 at the most, but for rare draws
    # -90 equals both, -80 beats both: (2 / 2 + 2) / 4.
    assert acrobot["difference"] == 5 and acrobot["probability_of_improvement"] == 0.75
    mean = (13.5 / 16 + 0.75) / 2
    assert both["probability_of_improvement"] == pytest.approx(mean) and "difference" not in both
    assert "ppo against dqn" in printed.err and "12.5 (" in printed.err
    # Single runs are not compared.
    assert main(words) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["comparisons"] == [] and "against" not in printed.err


@pytest.mark.parametrize("name", ["$$", "a$\\foo$", "_under", "[red]", "100%"])
def test_a_folder_of_any_name_is_drawn_as_it_is_called(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runs = [write_run(tmp_path / one, [1, 2], environment=name) for one in (name, "other")]
    figure = plot_comparison(groups_of(runs, False), "evaluation_return_mean", "env_steps")
    figure.draw_without_rendering()
    legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert [text.strip().replace("\\$", "$") for text in legend] == [name, "other"]
    assert main(["plot", name, "other"]) == 0
    assert name in capsys.readouterr().out


def test_numbers_that_float32_does_not_have_are_left_out(tmp_path, capsys):
    paths = [write_run(tmp_path / f"r{s}", [1, 1e308, s, -1e308], seed=s) for s in (2, 3)]
    out = ["--out", str(tmp_path / "p.png")]
    assert main(["plot", *map(str, paths), "--group", *out, "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert group["last"]["values"] == [2, 3] and group["best"]["values"] == [2, 3]
    huge = str(write_run(tmp_path / "huge", [1e308, -1e308]))
    assert main(["plot", huge, *out]) == 2
    assert "huge has no value of evaluation_return_mean" in capsys.readouterr().err


def test_labels_are_settings_where_few_differ_and_folders_where_many_do(tmp_path):
    write = lambda name, **settings: write_run(tmp_path / name, [1, 2], **settings)  # noqa: E731
    one = write("one", seed=1)
    assert [g.label for g in groups_of([one], False)] == ["one"]
    two = write("two", seed=2, gamma=0.5)
    assert [g.label for g in groups_of([one, two], False)] == [
        "gamma 0.99, seed 1",
        "gamma 0.5, seed 2",
    ]
    other = write("other", algorithm="dqn", n_step=3, seed=1)
    assert [g.label for g in groups_of([one, other])] == ["ppo", "dqn"]
    base = {"a": 1, "b": 1, "c": 1, "d": 1}
    many = [write("x", **base), write("y", **dict.fromkeys(base, 2))]
    assert [g.label for g in groups_of(many)] == ["x", "y"]
    # Alike but for their folder, whose name is the same.
    same = [write("p/run"), write("q/run")]
    assert [g.label for g in groups_of(same, False)] == [str(path) for path in same]


def test_environments_have_panels_of_their_own_with_the_same_colors(tmp_path):
    paths = [
        write_run(tmp_path / f"{env}{gamma}", [1, 2], environment=env, gamma=gamma)
        for env in ("CartPole-v1", "Pendulum-v1")
        for gamma in (0.9, 0.99)
    ]
    figure = plot_comparison(groups_of(paths), "evaluation_return_mean", "env_steps")
    assert [ax.get_title() for ax in figure.axes] == ["CartPole-v1", "Pendulum-v1"]
    colors = [[line.get_color() for line in ax.lines] for ax in figure.axes]
    assert colors[0] == colors[1] and colors[0][0] != colors[0][1]


@pytest.mark.parametrize("count", [2, 10, 25])
def test_every_run_has_an_entry_and_a_look_of_its_own(count, tmp_path):
    paths = [write_run(tmp_path / f"r{s}", [1, s], seed=s) for s in range(count)]
    figure = plot_comparison(groups_of(paths, False), "evaluation_return_mean", "env_steps")
    ax = figure.axes[0]
    entries = [text.get_text() for text in ax.get_legend().get_texts()]
    assert entries == [f"seed {s}" for s in range(count)]
    assert len({(str(line.get_color()), line.get_linestyle()) for line in ax.lines}) == count


def test_a_group_folder_stands_for_its_seeds(tmp_path):
    for seed in (2, 10):
        write_run(tmp_path / f"seed-{seed}", [1], seed=seed)
    (tmp_path / GROUP_FILE).write_text("settings: {}\n")
    (tmp_path / "seed-3").mkdir()  # it failed
    for name in ("seed-x", "seed-", "seed-1 copy", "seed-²"):
        write_run(tmp_path / name, [1])
    assert [path.name for path in run_folders([tmp_path])] == ["seed-2", "seed-10"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "nothing"], "nothing is no run (it does not"),
        (["a", "folder"], "folder is no run (no"),
        (["a", "./a"], "a is given twice"),
        (["a", "without"], "does not exist, expected a"),
        (["a", "--metric", "entropy"], "by --metric: loss,"),
        (["a", "bare"], "have no metric in common"),
        (["a", "empty"], "have no metric in common"),
        (["a", "--out", "a.txt"], "--out is 'a.txt'"),
        (["a", "--out", "a.pgf"], "--out is 'a.pgf'"),
        (["group"], "group holds no run with a"),
    ],
)
def test_bad_input_is_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "without", "bare", "empty"):
        write_run(tmp_path / name, [1, 2] if name != "empty" else [])
    (tmp_path / "without" / "metrics.csv").unlink()
    (tmp_path / "bare" / "metrics.csv").write_text("env_steps,updates,wall_seconds\n1,1,1\n")
    for name in ("folder", "group"):
        (tmp_path / name).mkdir()
    (tmp_path / "group" / GROUP_FILE).write_text("settings: {}\n")
    assert main(["plot", *words]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1 and not printed.out
    assert not (tmp_path / "comparison.png").exists()


def test_a_picture_of_no_name_is_not_written_through_a_link(tmp_path, monkeypatch, capsys):
    path = write_run(tmp_path / "run", [1, 2])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "comparison.png").symlink_to(tmp_path / "outside.png")
    assert main(["plot", str(path)]) == 2
    assert "is a link" in capsys.readouterr().err and not (tmp_path / "outside.png").exists()
