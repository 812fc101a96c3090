"""Quality of predicted labels: a confusion matrix, and metrics of each class."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from kytolly.record.files import write_file, write_text
from kytolly.record.learning_curve import EVALUATION_COLOR, TRAINING_COLOR

MATRIX, METRICS, CURVE = "confusion_matrix", "class_metrics", "f1_curve"
MAX_WITH_PERCENT = 20  # classes; in a larger matrix a cell has room for the count only
MAX_NAME_CHARACTERS = 30  # characters of a class in a plot


class WeakestClass(NamedTuple):
    """The class of the lowest F1, and its most frequent confusion.

    Attributes:
        name: The class.
        f1: Its F1.
        confused_with: What its rows are most often taken for; where all of them are found, what is
            most often taken for it; "" without a mistake.
        times: Number of such rows.
    """

    name: str
    f1: float
    confused_with: str
    times: int


@dataclasses.dataclass(frozen=True)
class ClassificationReport:
    """Predictions against the truth.

    Attributes:
        classes: [C] names.
        counts: [C, P] number of texts by their class (rows) and the prediction (columns).
        precision: [C] share of the predictions of a class that are right; 0 without a prediction.
        recall: [C] share of a class's texts that are found; 0 without a text.
        f1: [C] harmonic mean of both.
        macro_f1: Mean of F1 over the classes that have a text or a prediction.
        weighted_f1: Mean of F1 over the texts.
        accuracy: Share of the texts with the right prediction.
        predictions: [P] names of the columns; empty: the classes.
        right: [C] the column that is right for each class; empty: its own.
        noun: What is counted.
        axes: What rows and columns are.
    """

    classes: tuple[str, ...]
    counts: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray
    macro_f1: float
    weighted_f1: float
    accuracy: float
    predictions: tuple[str, ...] = ()
    right: tuple[int, ...] = ()
    noun: str = "texts"
    axes: tuple[str, str] = ("true class", "predicted class")

    @property
    def columns(self) -> tuple[str, ...]:
        """[P] names of what is predicted."""
        return self.predictions or self.classes

    @property
    def support(self) -> np.ndarray:
        """[C] number of texts of each class."""
        return self.counts.sum(axis=1)

    @property
    def row_percent(self) -> np.ndarray:
        """[C, P] counts as percentages of their row; 0 in a row without a text."""
        return 100 * self.counts / np.maximum(self.support, 1)[:, np.newaxis]

    @property
    def weakest(self) -> WeakestClass:
        """The class of the lowest F1 among those with a text."""
        place = int(np.where(self.support > 0, self.f1, np.inf).argmin())
        right = np.array(self.right or range(len(self.classes)))
        mistakes = self.counts.copy()
        mistakes[np.arange(len(right)), right] = 0
        others, names = mistakes[place], self.columns
        if not others.any():
            others, names = mistakes[:, right[place]], self.classes
        other = int(others.argmax())
        name = names[other] if others[other] else ""
        return WeakestClass(self.classes[place], float(self.f1[place]), name, int(others[other]))

    def summary(self) -> dict[str, Any]:
        """The metrics for `result.json`."""
        return {
            "macro_f1": self.macro_f1,
            "weighted_f1": self.weighted_f1,
            "accuracy": self.accuracy,
            self.noun: int(self.counts.sum()),
            "weakest_class": self.weakest._asdict(),
        }

    def lines(self) -> list[str]:
        """The metrics of each class and of all, as text for a reader."""
        width = max(len("weighted mean"), *map(len, self.classes))
        lines = [f"{'':<{width}}  precision  recall     F1  support"]
        for name, *numbers, support in self.rows():
            lines.append(
                f"{name:<{width}}  {numbers[0]:9.3f}  {numbers[1]:6.3f}  {numbers[2]:5.3f}  "
                f"{support:7d}"
            )
        total = int(self.counts.sum())
        for name, value in (("macro mean", self.macro_f1), ("weighted mean", self.weighted_f1)):
            lines.append(f"{name:<{width}}  {'':9}  {'':6}  {value:5.3f}  {total:7d}")
        weakest = self.weakest
        if weakest.confused_with:
            lines.append(
                f"Weakest class: {weakest.name} (F1 {weakest.f1:.3f}), most often confused with "
                f"{weakest.confused_with} ({weakest.times} times)."
            )
        return lines

    def rows(self) -> list[tuple[str, float, float, float, int]]:
        """Name, precision, recall, F1 and support of each class."""
        columns = (column.tolist() for column in (self.precision, self.recall, self.f1))
        return list(zip(self.classes, *columns, self.support.tolist(), strict=True))


def classification_report(
    classes: Sequence[str], true: Sequence[int], predicted: Sequence[int]
) -> ClassificationReport:
    """Metrics of predicted classes.

    Args:
        classes: [C] names.
        true: [n] index of each text's class, n above 0.
        predicted: [n] index of the class that was predicted.

    Raises:
        ValueError: There is no text.
        ModuleNotFoundError: scikit-learn is not installed.
    """
    if not len(true):
        raise ValueError("there is no text to measure; expected at least one: add labeled texts.")
    metrics = sklearn_metrics()
    indices = range(len(classes))
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(
        true, predicted, labels=indices, zero_division=0
    )
    return ClassificationReport(
        classes=tuple(classes),
        counts=metrics.confusion_matrix(true, predicted, labels=indices),
        precision=precision,
        recall=recall,
        f1=f1,
        macro_f1=macro_f1(true, predicted),
        weighted_f1=float(metrics.f1_score(true, predicted, average="weighted", zero_division=0)),
        accuracy=float(metrics.accuracy_score(true, predicted)),
    )


def macro_f1(true: Sequence[int], predicted: Sequence[int]) -> float:
    """Mean of F1 over the classes that have a text or a prediction."""
    return float(sklearn_metrics().f1_score(true, predicted, average="macro", zero_division=0))


def sklearn_metrics() -> Any:
    """The module of metrics of scikit-learn."""
    try:
        from sklearn import metrics
    except ImportError:
        raise ModuleNotFoundError(
            "The package scikit-learn is not installed, and metrics of classes need it: "
            "pip install 'kytolly[text]'."
        ) from None
    return metrics


def write_report(run_dir: Path, report: ClassificationReport, step: int, prefix: str = "") -> None:
    """Write the matrix as PNG, CSV and image of TensorBoard, and the metrics of classes as CSV.

    Args:
        run_dir: The run's folder.
        report: What to write.
        step: Number of updates, for TensorBoard.
        prefix: Begins the names of the files and of the image.
    """
    picture, name = png(confusion_figure(report)), prefix + MATRIX
    write_file(run_dir / f"{name}.png", lambda to: to.write_bytes(picture))
    log_image(run_dir, name, picture, step)
    percent_names = [f"{column} %" for column in report.columns]
    matrix = [[report.axes[0], *report.columns, *percent_names]]
    for name, counts, percent in zip(
        report.classes, report.counts, report.row_percent, strict=True
    ):
        matrix.append([name, *map(str, counts), *(f"{share:.2f}" for share in percent)])
    write_text(run_dir / f"{prefix}{MATRIX}.csv", csv_text(matrix))
    rows = [(name, *(f"{x:.6f}" for x in numbers), n) for name, *numbers, n in report.rows()]
    header = ("class", "precision", "recall", "f1", "support")
    write_text(run_dir / f"{prefix}{METRICS}.csv", csv_text([header, *rows]))


def log_image(run_dir: Path, name: str, picture: bytes, step: int) -> None:
    """Add a PNG to TensorBoard's files of a run."""
    import tensorflow as tf

    writer = tf.summary.create_file_writer(str(run_dir))
    with writer.as_default(step=step):
        tf.summary.image(name, tf.io.decode_png(picture, channels=4)[tf.newaxis])
    writer.close()


def confusion_figure(report: ClassificationReport) -> Figure:
    """The confusion matrix: counts as numbers, row percentages as colors and as numbers."""
    size = max(len(report.classes), len(report.columns))
    side = min(max(4.5, 0.75 * size), 16) if size <= MAX_WITH_PERCENT else min(0.45 * size, 40)
    figure = Figure(figsize=(side + 2.5, side + 1.5), layout="constrained")
    ax = figure.add_subplot()
    percent = report.row_percent
    mesh = ax.imshow(percent, cmap="Blues", vmin=0, vmax=100)
    figure.colorbar(mesh, ax=ax, label=f"percent of the class's {report.noun}", shrink=0.8)
    for row, column in zip(*report.counts.nonzero(), strict=True):
        text = str(report.counts[row, column])
        if size <= MAX_WITH_PERCENT:
            text += f"\n{percent[row, column]:.0f}%"
        color = "white" if percent[row, column] > 55 else "black"
        ax.text(column, row, text, ha="center", va="center", fontsize=8, color=color)
    rows, columns = short_names(report.classes), short_names(report.columns)
    turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(range(len(columns)), columns, fontsize=8, **turned)
    ax.set_yticks(range(len(rows)), rows, fontsize=8)
    ax.tick_params(length=0)
    ax.set(xlabel=report.axes[1], ylabel=report.axes[0])
    total = int(report.counts.sum())
    ax.set_title(f"{total:,} {report.noun}, macro F1 {report.macro_f1:.3f}", fontsize=10)
    return figure


def short_names(names: Sequence[str]) -> list[str]:
    """Names that are not too long for a plot."""
    return [
        name if len(name) <= MAX_NAME_CHARACTERS else name[: MAX_NAME_CHARACTERS - 1] + "…"
        for name in names
    ]


def f1_curve_figure(
    updates: Sequence[int], training: Sequence[float], validation: Sequence[float]
) -> Figure:
    """Macro F1 over the run, on texts of the training split and of the dev split."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    ax = figure.add_subplot()
    ax.plot(updates, training, color=TRAINING_COLOR, lw=1.5, marker="o", ms=3, label="training")
    ax.plot(updates, validation, color=EVALUATION_COLOR, lw=2, marker="o", ms=4, label="validation")
    ax.set(xlabel="updates", ylabel="macro F1", ylim=(0, 1))
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="lower right")
    return figure


def png(figure: Figure) -> bytes:
    """A figure as the content of a PNG file."""
    figure.savefig(picture := io.BytesIO(), dpi=120, format="png")
    return picture.getvalue()


def csv_text(rows: Sequence[Sequence[object]]) -> str:
    """Rows as the content of a CSV file."""
    csv.writer(text := io.StringIO(), lineterminator="\n").writerows(rows)
    return text.getvalue()
