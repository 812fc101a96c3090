"""Small collections in the BEIR layout."""

import json


def write_collection_files(folder, docs, queries, judged):
    """Write a collection; returns its folder.

    Args:
        folder: Does not exist yet.
        docs, queries: Pairs of an id and a text.
        judged: By split, pairs of the ids of a query and of a relevant document.
    """
    (folder / "qrels").mkdir(parents=True)
    for name, part in (("corpus", docs), ("queries", queries)):
        text = "".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in part)
        (folder / f"{name}.jsonl").write_text(text, "utf-8")
    for split, pairs in judged.items():
        text = "".join(f"{query}\t{doc}\t1\n" for query, doc in pairs)
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + text)
    return folder


def write_animals(folder):
    """Queries for an animal, whose documents say what it is and has, in other words."""
    docs = [(f"d{k}", f"being{k} limb{k}") for k in range(6)]
    docs += [(f"e{k}", f"being{k} limb{k} limb{k}") for k in range(6)]
    rows, qrels = [], {"train": [], "dev": [], "test": []}
    for split, words in (("train", "see a find"), ("dev", "some"), ("test", "any")):
        for word in words.split():
            for k, animal in enumerate("cat dog horse bird fish snake".split()):
                rows.append((f"{word}{k}", f"{word} {animal}"))
                qrels[split] += [(f"{word}{k}", f"d{k}"), (f"{word}{k}", f"e{k}")]
    return write_collection_files(folder, docs, rows, qrels)
