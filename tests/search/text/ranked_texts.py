"""A small collection in which BM25 is misled, and words of the relevant documents say so."""

import json
import random

NOISE = "red blue green fast slow big small old new warm cold long short deep".split()


def write_ranking(folder, topics=60, splits=("train", "dev", "test")):
    """Each query finds five documents by its word; the relevant one is the longest of them."""
    draw = random.Random(0)
    docs, queries, qrels = [], [], {split: [] for split in splits}
    for number in range(topics):
        word = f"topic{number}"
        for place in range(5):
            noise = draw.choices(NOISE, k=4 if place else 8)
            words = [word, *noise, "answer" if not place else "question"]
            docs.append((f"d{number}.{place}", " ".join(words)))
        queries.append((f"q{number}", f"what is {word}"))
        split = splits[0] if number % 2 else splits[1 + number // 2 % (len(splits) - 1)]
        qrels[split].append((f"q{number}", f"d{number}.0"))
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", docs), ("queries", queries)):
        lines = [json.dumps({"_id": key, "text": text}) for key, text in rows]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    for split, pairs in qrels.items():
        lines = ["query-id\tcorpus-id\tscore", *(f"{query}\t{doc}\t1" for query, doc in pairs)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    return folder
