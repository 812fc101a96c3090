import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from kytolly.callback.csv_log import CSVLog
from kytolly.record.learning_curve import finish_axes, make_axes, save_learning_curve
from kytolly.record.pictures import plot_learning_curve, plot_over_states, plot_q_values
from tests.helpers.states import make_state, metrics_row

AXES = [(2, "pole angle (rad)", -0.2, 0.2), (3, "angular velocity (rad/s)", -2.0, 2.0)]


@pytest.fixture
def run_dir(tmp_path):
    log = CSVLog()
    log.on_train_begin(make_state(tmp_path))
    for env_steps, value in ((1_000, math.nan), (2_000, 20.0), (3_000, 30.0)):
        log.on_log(make_state(tmp_path, env_steps, metrics=metrics_row(episode_return=value)))
        if env_steps != 2_000:
            log.on_evaluation(make_state(tmp_path, env_steps, evaluation_return=env_steps / 100))
    return tmp_path


def test_the_learning_curve_shows_both_returns_where_they_are_known(run_dir):
    ax = plot_learning_curve(run_dir)
    training, evaluation = ax.lines
    np.testing.assert_array_equal(training.get_xydata(), [[2_000, 20], [3_000, 30]])
    np.testing.assert_array_equal(evaluation.get_xydata(), [[1_000, 10], [3_000, 30]])
    band = ax.collections[0].get_datalim(ax.transData)
    assert (band.ymin, band.ymax) == (10 - 1.5, 30 + 1.5)
    assert ax.get_xlabel() == "env steps"


def test_a_metrics_file_and_own_axes_do_as_well(run_dir):
    ax = Figure().add_subplot()
    assert plot_learning_curve(run_dir / "metrics.csv", ax) is ax
    assert len(ax.lines) == 2


def test_the_curve_is_saved_as_a_picture_with_something_in_it(run_dir):
    path = save_learning_curve(run_dir)
    assert path == run_dir / "learning_curve.png"
    picture = imread(path)
    assert picture.shape[:2] == (480, 840) and np.ptp(picture) == 1.0
    assert not list(run_dir.glob(".partial*"))


def test_a_run_without_rows_says_so(tmp_path):
    CSVLog().on_train_begin(make_state(tmp_path))
    assert plot_learning_curve(tmp_path).texts[0].get_text() == "no metrics yet"


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected a run's folder or its"):
        plot_learning_curve(tmp_path)


def test_pyplot_is_never_loaded():
    code = "import sys, kytolly.record.pictures; sys.exit('matplotlib.pyplot' in sys.modules)"
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


def recorded(seen, q):
    def q_function(observations):
        seen.append(observations)
        return q(observations)

    return q_function


def two_actions(observations):
    """The second action is better by twice the third number."""
    base = observations[:, 3]
    return np.stack([base, base + 2 * observations[:, 2]], axis=1)


def mesh_of(ax):
    return np.asarray(ax.collections[0].get_array())


def test_two_dimensions_vary_and_the_others_are_held():
    seen = []
    plot_q_values(recorded(seen, two_actions), AXES, [7.0, 8.0, 9.0, 9.0], resolution=5)
    points = seen[0].reshape(5, 5, 4)
    np.testing.assert_array_equal(points[..., 0], np.full((5, 5), 7.0))
    np.testing.assert_array_equal(points[..., 1], np.full((5, 5), 8.0))
    np.testing.assert_allclose(points[3, :, 2], [-0.2, -0.1, 0.0, 0.1, 0.2])
    np.testing.assert_allclose(points[:, 3, 3], [-2.0, -1.0, 0.0, 1.0, 2.0])


def test_of_two_actions_the_difference_is_drawn_and_where_it_changes_sign():
    figure = plot_q_values(two_actions, AXES, np.zeros(4), ["left", "right"], resolution=5)
    value_ax, choice_ax = figure.axes[:2]
    # Row 3 is an angular velocity of 1: left is worth 1, right 1 + 2 * angle.
    np.testing.assert_allclose(mesh_of(value_ax).reshape(5, 5)[3], [1, 1, 1, 1.2, 1.4], rtol=1e-6)
    gaps = mesh_of(choice_ax).reshape(5, 5)[3]
    np.testing.assert_allclose(gaps, [-0.4, -0.2, 0, 0.2, 0.4], atol=1e-6)
    assert len(choice_ax.collections) == 2  # colors, and the line between them
    assert choice_ax.get_title() == "Value of right minus value of left"
    assert (value_ax.get_xlabel(), value_ax.get_ylabel()) == (AXES[0][1], AXES[1][1])


def test_an_action_that_is_better_everywhere_needs_no_line():
    figure = plot_q_values(lambda x: np.tile([1.0, 2.0], (len(x), 1)), AXES, np.zeros(4))
    assert len(figure.axes[1].collections) == 1


@pytest.mark.parametrize("count", [3, 12])
def test_of_more_actions_the_greedy_one_is_drawn(count, tmp_path):
    def q_function(observations):
        return -((observations[:, 2:3] * 10 - np.arange(count) + 2) ** 2)

    names = [f"push {index}" for index in range(count)]
    figure = plot_q_values(q_function, AXES, np.zeros(4), names, resolution=5)
    actions = mesh_of(figure.axes[1]).reshape(5, 5)[0]
    np.testing.assert_array_equal(actions, np.minimum([0, 1, 2, 3, 4], count - 1))
    figure.savefig(tmp_path / "q.png")
    labels = [label.get_text() for label in figure.axes[-1].get_yticklabels()]
    assert labels == names


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"axes": [AXES[0], AXES[0]]}, "two different ones of 0 to 3"),
        ({"axes": AXES[:1]}, "two different ones"),
        ({"axes": [AXES[0], (4, "beyond", 0.0, 1.0)]}, r"dimensions \[2, 4\]"),
        ({"axes": [AXES[0], (3, "upside down", 1.0, -1.0)]}, "Swap them"),
        ({"observation": np.zeros((2, 4))}, r"shape \(2, 4\), expected one vector"),
        ({"action_names": ["left"]}, "1 names for 2 actions"),
        ({"q_function": lambda x: x[0]}, r"returned shape \(4,\)"),
    ],
)
def test_what_cannot_be_drawn_is_refused(changes, words):
    arguments = {"q_function": two_actions, "axes": AXES, "observation": np.zeros(4), **changes}
    with pytest.raises(ValueError, match=words):
        plot_q_values(**arguments)


STATES = [("angle (rad)", -3.0, 3.0), ("velocity (rad/s)", -8.0, 8.0)]
TORQUE = ("Policy", "torque (N m)", lambda obs: obs[:, 0] - obs[:, 1])
VALUE = ("Value", "return", lambda obs: -np.abs(obs[:, 0]) - 1.0)


def pair(angle, velocity):
    return np.stack([angle, velocity], axis=-1)


def test_functions_of_the_state_are_drawn_side_by_side():
    figure = plot_over_states([TORQUE, VALUE], STATES, pair, resolution=5)
    torque, value = (mesh_of(ax).reshape(5, 5) for ax in figure.axes[:2])
    # Across, the angle is -3, -1.5, 0, 1.5, 3; row 3 is a velocity of 4.
    np.testing.assert_allclose(torque[3], [-7, -5.5, -4, -2.5, -1])
    np.testing.assert_allclose(value[3], [-4, -2.5, -1, -2.5, -4])
    for ax, title in zip(figure.axes[:2], ("Policy", "Value"), strict=True):
        assert (ax.get_title(), ax.get_xlabel()) == (title, "angle (rad)")
        assert (*ax.get_xlim(), *ax.get_ylim()) == (-3, 3, -8, 8)
    assert [ax.get_ylabel() for ax in figure.axes[2:]] == ["torque (N m)", "return"]


@pytest.mark.parametrize(
    ("lowest", "highest", "limits", "lines"),
    [(-5, 11, (-11, 11), 1), (-11, 1, (-11, 1), 0), (2, 4, (2, 4), 0), (0, 0, (-0.1, 0.1), 0)],
    ids=["both signs", "hardly any above 0", "one sign", "nothing"],
)
def test_two_colors_meet_at_0_where_both_signs_matter(lowest, highest, limits, lines):
    picture = ("", "", lambda obs: np.linspace(lowest, highest, len(obs)))
    ax = plot_over_states([picture], STATES, pair, resolution=5).axes[0]
    assert ax.collections[0].get_clim() == limits
    assert len(ax.collections) == 1 + lines


def test_an_episode_is_a_path_that_breaks_where_the_angle_turns_over(tmp_path):
    path = [(2.0, 1.0), (2.9, 1.0), (-2.9, 1.0), (-2.0, 8.0), (-2.0, -1.0)]
    figure = plot_over_states([TORQUE, VALUE], STATES, pair, path, resolution=5)
    for ax in figure.axes[:2]:
        line, dot = ax.lines
        across, upwards = line.get_data()
        np.testing.assert_array_equal(across, [2.0, 2.9, np.nan, -2.9, -2.0, np.nan, -2.0])
        np.testing.assert_array_equal(upwards, [1, 1, np.nan, 1, 8, np.nan, -1])
        np.testing.assert_array_equal(dot.get_xydata(), [[2.0, 1.0]])
    figure.savefig(tmp_path / "states.png")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"axes": [STATES[0], ("velocity", 8.0, -8.0)]}, "velocity go from 8.0 to -8.0.*Swap"),
        ({"plots": [("P", "", lambda obs: obs)]}, r"'P' returned shape \(25, 2\).*\(25,\)"),
    ],
)
def test_what_cannot_be_drawn_over_states_is_refused(changes, words):
    arguments = {"plots": [TORQUE], "axes": STATES, "observe": pair, "resolution": 5, **changes}
    with pytest.raises(ValueError, match=words):
        plot_over_states(**arguments)


@pytest.mark.parametrize(
    ("value", "words"), [(0, "0"), (950, "950"), (2_500, "2.5k"), (10_000_000, "10M"), (1e9, "1G")]
)
def test_counts_are_short(value, words):
    ax = finish_axes(make_axes(), "env steps", known=False)
    assert ax.xaxis.get_major_formatter()(value) == words
