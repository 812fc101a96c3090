"""Queries whose relevant documents only a rewriter can lead to, and options to train on them."""

import dataclasses

from kytolly.search.config.rewriter import RewriterConfig
from kytolly.search.text.train_rewriter import train_rewriter
from tests.search.text.collection_files import write_collection_files

ANIMALS = "cat dog horse bird fish snake".split()
TINY = RewriterConfig(
    batch_size=12,
    total_updates=100,
    num_buckets=1,
    units=16,
    max_source_length=5,
    max_target_length=2,
    learning_rate=3e-2,
    dropout=0.0,
    pretrained=False,
    evaluation_interval_updates=50,
    log_interval_updates=50,
    updates_per_call=10,
    held_out_folds=2,
    xla=False,
)


def write_far_terms(folder, splits=("train", "dev", "test")):
    """A query names an animal, its relevant documents say what that is and has, in other words.

    What the query itself finds says nothing of that.
    """
    docs = [
        (f"good{k}.{n}", f"being{k} limb{k} limb{k}" if n else f"being{k} limb{k}")
        for k in range(6)
        for n in (0, 1)
    ]
    docs += [(f"bad{k}.{n}", f"{a} noise{n}") for k, a in enumerate(ANIMALS) for n in range(3)]
    words = {"train": "see a find", "dev": "some", "test": "any"}
    rows, qrels = [], {split: [] for split in splits}
    for split in splits:
        for word in words[split].split():
            for k, animal in enumerate(ANIMALS):
                rows.append((f"{word}{k}", f"{word} {animal}"))
                qrels[split] += [(f"{word}{k}", f"good{k}.{n}") for n in (0, 1)]
    return write_collection_files(folder, docs, rows, qrels)


def make_rewriter(folder, collection, **changes):
    """A rewriter's run."""
    train_rewriter(dataclasses.replace(TINY, **changes), collection, folder, progress=False)
    return folder
