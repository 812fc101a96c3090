"""Training a text classifier: from labeled texts to a run with its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from kytolly.record.checkpoint import BEST
from kytolly.record.files import write_file
from kytolly.record.metrics_file import NAME, number_in, read_rows
from kytolly.record.network_file import load_network
from kytolly.record.run_folder import RunFolder
from kytolly.search.config.classifier import ClassifierConfig
from kytolly.search.text.classification_report import CURVE, f1_curve_figure, png, write_report
from kytolly.search.text.classifier import ClassificationTask, TextClassifier
from kytolly.search.text.labeled_texts import read_labeled_texts
from kytolly.trainer import Callbacks, Trainer


def train_classifier(
    cfg: ClassifierConfig,
    data: str | Path,
    log_dir: str | Path | None = None,
    *,
    cb: Callbacks = (),
    resume: bool = False,
    progress: bool = True,
) -> tuple[dict[str, Any], list[str]]:
    """Train a classifier, and measure its best weights on the test split.

    Args:
        cfg: How to read and to learn.
        data: Labeled texts, as `read_labeled_texts` takes them.
        log_dir: The run's folder; None: a new one.
        cb: Callbacks, ours and Keras's.
        resume: Continue the run in `log_dir`.
        progress: Show a progress bar on standard error.

    Returns:
        What `result.json` holds, and the metrics of each class as lines of text.

    Raises:
        ValueError: The data or a setting does not fit.
        ModuleNotFoundError: scikit-learn or wordllama is not installed.
    """
    texts = read_labeled_texts(data, cfg.text_column, cfg.label_column)
    task = ClassificationTask(Path(data).resolve().stem, texts, cfg)
    result = Trainer(log_dir, progress).train_supervised(cfg, task, cb, resume=resume)
    result.require_written()
    folder = Path(result.run_dir)
    network = load_network(folder / BEST)
    TextClassifier(network, texts.classes, cfg.max_length, task.vocabulary).save(folder)
    report = task.report(network, "test")
    write_report(folder, report, result.summary["updates"])
    save_f1_curve(folder)
    summary = {
        **result.summary,
        "classes": list(texts.classes),
        "texts": {split: len(part.texts) for split, part in texts.splits.items()},
        "unseen_labels": texts.unseen,
        "test": report.summary(),
    }
    RunFolder(folder).write_result(summary)
    return summary, report.lines()


def save_f1_curve(folder: Path) -> None:
    """Save the plot of training and validation F1 over the run."""
    columns = ("evaluation_training_macro_f1", "evaluation_macro_f1")
    rows = read_rows(folder / NAME, "updates")
    values = np.array([[number_in(row, name) for name in ("updates", *columns)] for row in rows])
    updates, training, validation = values[np.isfinite(values[:, 1])].T
    picture = png(f1_curve_figure(updates, training, validation))
    write_file(folder / f"{CURVE}.png", lambda to: to.write_bytes(picture))
