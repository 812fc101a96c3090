"""Metrics of predicted classes, by hand, and the files that show them."""

import csv

import numpy as np
import pytest

pytest.importorskip("sklearn")

from kytolly.search.text.classification_report import (
    classification_report,
    confusion_figure,
    f1_curve_figure,
    write_report,
)

CLASSES = ("cat", "dog", "owl", "yak")
TRUE = [0, 0, 0, 0, 1, 1, 2, 2]
PREDICTED = [0, 0, 0, 1, 1, 0, 1, 1]  # one cat is a dog, one dog a cat, both owls are dogs


@pytest.fixture(scope="module")
def report():
    return classification_report(CLASSES, TRUE, PREDICTED)


def test_metrics_of_each_class_and_their_means(report):
    assert report.counts.tolist() == [[3, 1, 0, 0], [1, 1, 0, 0], [0, 2, 0, 0], [0, 0, 0, 0]]
    # cat: 3 of 4 predictions, 3 of 4 texts; dog: 1 of 4, 1 of 2, F1 2*(1/8)/(3/4); owl: never.
    np.testing.assert_allclose(report.precision, [3 / 4, 1 / 4, 0, 0])
    np.testing.assert_allclose(report.recall, [3 / 4, 1 / 2, 0, 0])
    np.testing.assert_allclose(report.f1, [3 / 4, 1 / 3, 0, 0])
    # The yak has neither a text nor a prediction: with it the mean would be a quarter of the sum.
    assert report.macro_f1 == pytest.approx((3 / 4 + 1 / 3) / 3)
    assert report.weighted_f1 == pytest.approx((4 * 3 / 4 + 2 / 3) / 8)
    assert report.accuracy == 0.5
    np.testing.assert_allclose(report.row_percent[:2], [[75, 25, 0, 0], [50, 50, 0, 0]])


def test_the_weakest_class_is_one_with_texts(report):
    assert report.weakest == ("owl", 0.0, "dog", 2)
    assert (
        "Weakest class: owl (F1 0.000), most often confused with dog (2 times)."
        in (report.lines()[-1])
    )
    # All dogs are found, but a cat is taken for one, and 2/3 < 6/7.
    by_precision = classification_report(CLASSES, [0, 0, 0, 0, 1], [0, 0, 0, 1, 1])
    assert by_precision.weakest == ("dog", pytest.approx(2 / 3), "cat", 1)
    assert classification_report(CLASSES, [0], [0]).weakest == ("cat", 1.0, "", 0)


def test_the_files_hold_counts_and_percentages(report, tmp_path):
    write_report(tmp_path, report, step=7)
    rows = list(csv.reader((tmp_path / "confusion_matrix.csv").open()))
    assert rows[0] == ["true class", *CLASSES, "cat %", "dog %", "owl %", "yak %"]
    assert rows[1] == ["cat", "3", "1", "0", "0", "75.00", "25.00", "0.00", "0.00"]
    rows = list(csv.reader((tmp_path / "class_metrics.csv").open()))
    assert rows[2] == ["dog", "0.250000", "0.500000", "0.333333", "2"]
    assert (tmp_path / "confusion_matrix.png").read_bytes()[:4] == b"\x89PNG"
    (events,) = tmp_path.glob("events.*")
    assert logged_images(events) == [("confusion_matrix", 7)]


def logged_images(events):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    found = [(value.tag, event.step) for event in EventFileLoader(str(events)).Load()
             for value in event.summary.value]  # fmt: skip
    return found


@pytest.mark.parametrize("size", [4, 37])
def test_a_cell_says_its_count_and_in_a_small_matrix_its_percentage(size):
    names = [f"class {index}" for index in range(size)]
    figure = confusion_figure(classification_report(names, [0, 0, 0, 1], [0, 0, 1, 1]))
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == (["2\n67%", "1\n33%", "1\n100%"] if size == 4 else ["2", "1", "1"])


def test_the_curve_has_both_lines():
    axes = f1_curve_figure([10, 20], [0.5, 0.9], [0.4, 0.6]).axes[0]
    assert [list(line.get_ydata()) for line in axes.lines] == [[0.5, 0.9], [0.4, 0.6]]


def test_no_text_has_no_metrics():
    with pytest.raises(ValueError, match="there is no text"):
        classification_report(CLASSES, [], [])
