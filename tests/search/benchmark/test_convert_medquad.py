"""MedQuAD's XML becomes a collection whose splits share no subject."""

import csv

import pytest

from kytolly.search.index.corpus import load_collection
from kytolly.search.scripts.convert_medquad import Sizes, convert, convert_labels, read_pairs

LARGE = Sizes(train=100, dev=0, test=0)


def write(checkout, name, focus, pairs, synonyms=(), part="1_Made_QA"):
    pair = "<QAPair><Question qtype='kind'>{}</Question><Answer>{}</Answer></QAPair>"
    names = "".join(f"<Synonym>{synonym}</Synonym>" for synonym in synonyms)
    text = f"<Document><Focus>{focus}</Focus><FocusAnnotations><Synonyms>{names}</Synonyms>"
    text += f"</FocusAnnotations><QAPairs>{''.join(pair.format(*p) for p in pairs)}</QAPairs>"
    (checkout / part).mkdir(parents=True, exist_ok=True)
    (checkout / part / f"{name}.xml").write_text(text + "</Document>", encoding="utf-8")


def converted(checkout, folder, sizes=LARGE):
    convert(read_pairs(checkout), folder, sizes)
    splits = [split for split in sizes._fields if getattr(sizes, split)]
    return load_collection(folder, splits)


def test_equal_answers_and_equal_questions_are_one_and_unanswered_ones_none(tmp_path):
    gout = [("What is gout ?", "A  kind\n of\tarthritis."), ("Is gout rare ?", "")]
    write(tmp_path / "in", "01", "Gout", gout)
    write(tmp_path / "in", "02", "gout", [("What is GOUT?", "Crystals."), ("Why?", "Crystals.")])
    write(tmp_path / "in", "03", "GOUT", [("How so ?", "Crystals.")])
    write(tmp_path / "in", "01", "Flu", [("Treatment of flu ?", "Crystals.")], part="2_Other_QA")
    made = converted(tmp_path / "in", tmp_path / "out")
    assert dict(zip(made.doc_ids, made.texts, strict=True)) == {
        "1/01-1": "Gout A kind of arthritis.",
        "1/02-1": "gout Crystals.",  # the answer to three questions
        "2/01-1": "Flu Crystals.",  # the same text about something else
    }
    assert made.judgments["train"] == {
        "1/01-1": {"1/01-1": 1, "1/02-1": 1},
        "1/02-2": {"1/02-1": 1},
        "1/03-1": {"1/02-1": 1},
        "2/01-1": {"2/01-1": 1},
    }


def test_a_subject_is_in_one_split_under_all_its_names(tmp_path):
    for n in range(30):
        questions = [(f"q{n}{k} ?", f"answer {n} {k}") for k in range(3)]
        write(tmp_path / "in", f"{n}a", f"Subject {n}", questions, [f"other {n}"])
        write(tmp_path / "in", f"{n}b", f"OTHER {n}", [(f"last {n} ?", f"end {n}")])
    made = converted(tmp_path / "in", tmp_path / "out", Sizes(train=40, dev=21, test=34))
    found = {split: set(judged) for split, judged in made.judgments.items()}
    # 4 questions a subject: 34 has room for 8 subjects, 21 for 5, 40 for 10; 7 subjects are left.
    assert {split: len(keys) for split, keys in found.items()} == {
        "train": 40,
        "dev": 20,
        "test": 32,
    }
    subjects = {s: {k.split("/")[1][:-3] for k in keys} for s, keys in found.items()}
    assert sum(map(len, subjects.values())) == len(set().union(*subjects.values())) == 23
    assert len(made.query_ids) == 92  # those judged in no split are left out
    assert len(made.doc_ids) == 120  # their answers are not


def test_a_folder_without_answers_and_a_broken_file_are_said(tmp_path):
    with pytest.raises(ValueError, match=r"has no answered question.*1_CancerGov_QA"):
        read_pairs(tmp_path)
    write(tmp_path, "01", "Gout & others", [("What is gout ?", "A kind of arthritis.")])
    with pytest.raises(ValueError, match=r"01\.xml: not XML"):
        read_pairs(tmp_path)


@pytest.mark.parametrize("field", ["question", "answer"])
def test_labeled_texts_share_no_subject_between_their_splits(tmp_path, field):
    for n in range(60):
        pairs = [(f"what, {n} ?", f"answer, {n} ."), (f"why {n} ?", "")]
        write(tmp_path / "in", f"{n}", f"Subject {n}", pairs)
    pairs = read_pairs(tmp_path / "in", unanswered=field == "question")
    convert_labels(pairs, field, tmp_path / "out")
    found = {}
    for split in ("train", "dev", "test"):
        with (tmp_path / "out" / f"{split}.csv").open(encoding="utf-8", newline="") as file:
            found[split] = [(row["text"], row["type"]) for row in csv.DictReader(file)]
    texts = [f"what, {n} ?" for n in range(60)] + [f"why {n} ?" for n in range(60)]
    if field == "answer":
        texts = [f"answer, {n} ." for n in range(60)]
    assert sorted(row for rows in found.values() for row in rows) == sorted(
        (text, "kind") for text in texts
    )
    subjects = {split: {text.split()[1] for text, _ in rows} for split, rows in found.items()}
    assert all(subjects.values())
    assert sum(map(len, subjects.values())) == len(set().union(*subjects.values())) == 60
