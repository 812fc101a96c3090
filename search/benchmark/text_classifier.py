"""Macro F1 of the text classifier, over seeds, beside logistic regression on TF-IDF.

    python -m kytolly.search.scripts.convert_medquad MedQuAD data/answers --labels answers
    python -m kytolly.search.benchmark.text_classifier data/answers --label-column type --seeds 3

Both learn from the same training texts; what there is to choose (for logistic regression its
regularization and weights of classes, for the classifier the moment of the run) is chosen by macro
F1 on the dev split. Logistic regression sees words and pairs of words of whole texts, the
classifier the first `max_length` tokens.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kytolly.search.config.classifier import ClassifierConfig
from kytolly.search.text.classification_report import macro_f1
from kytolly.search.text.labeled_texts import LabeledSplits, read_labeled_texts

STRENGTHS = (1.0, 10.0, 100.0)  # C of scikit-learn: how little it is regularized


class Score(NamedTuple):
    """A model's macro F1 on two splits, and the CPU seconds of its training."""

    model: str
    dev: float
    test: float
    seconds: float


def regression_scores(data: LabeledSplits) -> list[Score]:
    """Logistic regression with each regularization, with and without weights of classes."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    began = time.process_time()
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    train = vectorizer.fit_transform(data.splits["train"].texts)
    others = [vectorizer.transform(data.splits[split].texts) for split in ("dev", "test")]
    reading, scores = time.process_time() - began, []
    for weights in (None, "balanced"):
        for strength in STRENGTHS:
            began = time.process_time()
            model = LogisticRegression(C=strength, class_weight=weights, max_iter=300)
            model.fit(train, data.class_indices("train"))
            seconds = reading + time.process_time() - began
            dev, test = (
                macro_f1(data.class_indices(split), model.predict(rows))
                for split, rows in zip(("dev", "test"), others, strict=True)
            )
            name = f"logistic regression, C {strength:g}, weights {weights or 'none'}"
            scores.append(Score(name, dev, test, seconds))
    return scores


def classifier_score(cfg: ClassifierConfig, data: Path, log_dir: Path) -> Score:
    """One run of the classifier."""
    from kytolly.search.text.train_classifier import train_classifier

    began = time.process_time()
    summary, _ = train_classifier(cfg, data, log_dir, progress=False)
    scores = summary["evaluation"]["macro_f1"], summary["test"]["macro_f1"]
    return Score(f"classifier, seed {cfg.seed}", *scores, time.process_time() - began)


def lines(scores: Sequence[Score]) -> list[str]:
    """The scores as a table in Markdown."""
    rows = [f"| {s.model} | {s.dev:.4f} | {s.test:.4f} | {s.seconds:.0f} |" for s in scores]
    return ["| model | macro F1, dev | macro F1, test | CPU seconds |", "| - | - | - | - |", *rows]


def main() -> None:
    """Train both, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, help="labeled texts, as kytolly train classifier takes")
    parser.add_argument("--text-column", default="text")
    parser.add_argument("--label-column", default="label")
    parser.add_argument("--seeds", type=int, default=3, help="number of runs of the classifier")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--output", type=Path, default=Path("runs/text_classifier"))
    arguments = parser.parse_args()
    columns = arguments.text_column, arguments.label_column
    warnings.simplefilter("ignore")
    scores = regression_scores(read_labeled_texts(arguments.data, *columns))
    print("\n".join(lines(scores)), flush=True)
    best = max(scores, key=lambda score: score.dev)
    print(f"Best on dev: {best.model}, macro F1 {best.test:.4f} on test.", flush=True)
    tests = []
    for seed in range(arguments.seeds):
        cfg = ClassifierConfig(
            text_column=columns[0], label_column=columns[1], epochs=arguments.epochs, seed=seed
        )
        score = classifier_score(cfg, arguments.data, arguments.output / f"seed-{seed}")
        print(lines([score])[-1], flush=True)
        tests.append(score.test)
    print(f"Classifier on test: {np.mean(tests):.4f}, from {min(tests):.4f} to {max(tests):.4f}.")


if __name__ == "__main__":
    main()
