"""A collection made by rule, on which one kind of candidate helps, and options to train on it."""

import json

import numpy as np

from kytolly.search.reformulate.options import options_from

SETTINGS = {
    "retrieval": {
        "encoder": "hash",
        "dimension": 16,
        "candidates": 8,
        "max_terms": 2,
        "typed_share": None,
        "workers": 1,
    },
    "training": {
        "epochs": 2,
        "collect_batch_size": 8,
        "episodes_per_update": 16,
        "batch_size": 16,
        "warm_start_epochs": 60,
        "warm_start_learning_rate": 1e-2,
        "use_amp": False,
        "pool_documents": 64,
    },
    "rl_agent": {"hidden_units": [8]},
}
WITHOUT_TOKEN = {"train": "the of and", "dev": "of and the", "test": "and the of"}
SPLITS = {"train": range(8), "dev": (8, 9, 10, 14, 15, 16), "test": range(11, 14)}


def write_collection(folder, seed=0):
    """Topic k: its documents say `keyK`; the relevant ones say `synK` too, but rank behind.

    Each topic has three queries, each split one more without a token.
    """
    rng = np.random.default_rng(seed)
    noise = [f"noise{n}" for n in range(40)]
    docs, queries, qrels = [], [], {split: [] for split in SPLITS}
    for split, topics in SPLITS.items():
        for k in topics:
            for n in range(3):
                words = rng.choice(noise, 8).tolist()
                docs.append((f"good{k}.{n}", f"key{k} syn{k} syn{k} syn{k} {' '.join(words)}"))
            for n in range(5):
                words = rng.choice(noise, 2 + n).tolist()
                docs.append((f"bad{k}.{n}", f"key{k} key{k} {' '.join(words)}"))
            for n in range(3):
                queries.append((f"q{k}.{n}", f"key{k} {noise[n]}"))
                qrels[split] += [(f"q{k}.{n}", f"good{k}.{m}") for m in range(n + 1)]
        queries.append((f"empty-{split}", WITHOUT_TOKEN[split]))
        qrels[split].append((f"empty-{split}", docs[0][0]))
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", docs), ("queries", queries)):
        lines = [json.dumps({"_id": key, "text": text}) for key, text in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    for split, pairs in qrels.items():
        lines = ["query-id\tcorpus-id\tscore", *(f"{q}\t{doc}\t1" for q, doc in pairs)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def make_options(collection, retrieval=None, **training):
    changed = {
        "retrieval": {**SETTINGS["retrieval"], **(retrieval or {})},
        "training": {**SETTINGS["training"], **training},
    }
    return options_from({**SETTINGS, **changed, "collection": str(collection)})
