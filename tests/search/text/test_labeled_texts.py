"""Files of labeled texts, as users have them: what is read, and what is refused."""

import json

import pytest

from kytolly.search.text.labeled_texts import (
    SPLITS,
    read_file,
    read_labeled_texts,
    read_texts,
    text_bucket,
)

ROWS = [(f"text number {index}", "ab"[index % 2]) for index in range(200)]


def write_csv(path, rows, header="text,label"):
    path.write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n", encoding="utf-8")
    return path


def test_a_quoted_field_holds_delimiters_quotes_and_line_ends(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes('\ufefflabel,"text"\r\n x ,"a, ""b""\n\nc"\r\n\r\ny,d\r\n'.encode())
    texts, labels = read_file(path, "text", "label")
    assert texts == ('a, "b"\n\nc', "d") and labels == ("x", "y")


@pytest.mark.parametrize("name, sign", [("a.csv", ";"), ("a.csv", "\t"), ("a.tsv", "\t")])
def test_the_delimiter_is_that_of_the_header(tmp_path, name, sign):
    (tmp_path / name).write_text(f"text{sign}label\none, two{sign}x\n", encoding="utf-8")
    assert read_file(tmp_path / name, "text", "label").texts == ("one, two",)


def test_json_lines_take_numbers_as_labels(tmp_path):
    records = [{"body": "one", "stars": 5, "other": None}, {"body": "two", "stars": 1}]
    path = tmp_path / "a.jsonl"
    path.write_text("\n\n".join(map(json.dumps, records)), encoding="utf-8")
    assert read_file(path, "body", "stars") == (("one", "two"), ("5", "1"))


def test_splits_are_the_same_everywhere_and_keep_equal_texts_on_one_side(tmp_path):
    again = [(text.upper(), label) for text, label in ROWS]
    found = read_labeled_texts(write_csv(tmp_path / "a.csv", ROWS + again))
    sizes = {split: len(found.splits[split].texts) for split in SPLITS}
    assert sum(sizes.values()) == 400 and 15 <= sizes["dev"] <= 70 and 15 <= sizes["test"] <= 70
    sides = {split: {text.lower() for text in found.splits[split].texts} for split in SPLITS}
    assert not sides["train"] & sides["test"] and not sides["train"] & sides["dev"]
    # The digest itself, so that no later version splits the same file another way.
    assert [text_bucket(f"text number {n}") for n in range(5)] == [3, 0, 9, 4, 0]


def test_given_splits_stay_and_only_the_missing_one_is_taken_from_training(tmp_path):
    write_csv(tmp_path / "train.csv", ROWS)
    (tmp_path / "test.jsonl").write_text('{"text": "new", "label": "a"}\n', encoding="utf-8")
    found = read_labeled_texts(tmp_path)
    assert found.splits["test"].texts == ("new",)
    assert len(found.splits["train"].texts) + len(found.splits["dev"].texts) == 200
    assert found.class_indices("test") == [0]


@pytest.mark.parametrize("split", [".", "train"])
def test_a_folder_for_each_class(tmp_path, split):
    for index in range(60):
        folder = tmp_path / split / "ab"[index % 2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{index}.txt").write_text(f"text {index}\nmore", encoding="utf-8")
    found = read_labeled_texts(tmp_path)
    assert found.classes == ("a", "b")
    assert all("\nmore" in text for text in found.splits["train"].texts)


def test_labels_that_training_never_saw_are_counted_and_left_out(tmp_path):
    write_csv(tmp_path / "train.csv", ROWS)
    write_csv(tmp_path / "dev.csv", ROWS[:3])
    write_csv(tmp_path / "test.csv", [("one", "a"), ("two", "c"), ("three", "c"), ("four", "d")])
    with pytest.warns(UserWarning) as caught:
        found = read_labeled_texts(tmp_path)
    text = " ".join(str(one.message) for one in caught)
    assert "test: left out 3 texts of 2 classes that training never saw: 'c' (2), 'd' (1)." in text
    assert "dev: 3 texts are in training too" in text
    assert found.unseen == {"dev": {}, "test": {"c": 2, "d": 1}}
    assert found.splits["test"].texts == ("one",)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"txt,label\na,b\n", r"no column 'text'; its columns are 'txt', 'label'. Did you .*'txt'"),
        (b"", "no column 'text', nor any other: it is empty"),
        (b"text,label\na,b\n\n,\n", "a.csv:4: the column text is blank"),
        (b"text,label\n", "has no row"),
        (b"text,label\na,b\n ,b\n", r"a.csv:3: the column text is blank"),
        (b"text,label\na,\n", r"a.csv:2: the column label is blank"),
        (b"text,label\na,b,c\n", r"a.csv:2: 3 fields; expected 2"),
        (b'text,label\n"a"b,c\n', r"a.csv:2: not a table"),
        (b'text,label\n"a,b\nc', r"a.csv:3: not a table \(unexpected end of data\)"),
        (b"text,label\na,b\n\xe9t\xe9,b\n", r"a.csv:3: not UTF-8 \(.* at byte 0 of the line\)"),
        (b"text,label\n" + b"a,b\n" * 20, "20 texts given leave none for train"),
        (b"text,label\n" + b"".join(b"%d,b\n" % n for n in range(99)), "has one class .*, 'b'"),
    ],
)
def test_bad_tables_are_refused_in_one_line(tmp_path, content, message):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_labeled_texts(tmp_path / "a.csv")
    assert "\n" not in str(caught.value)


def test_a_text_to_classify_is_never_left_out(tmp_path):
    (tmp_path / "a.csv").write_text('text\na\n""\nb\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"a\.csv:3: the column text is blank"):
        read_texts(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("id,text\n1,a\n\n2,b\n", encoding="utf-8")  # a blank line
    assert read_texts(tmp_path / "b.csv") == ["a", "b"]


@pytest.mark.parametrize(
    "line, message",
    [
        ("[1]", "a.jsonl:1: no JSON object"),
        ("{", "a.jsonl:1: no JSON object"),
        ('{"Text": "a", "label": "b"}', "a.jsonl:1 has no column 'text'.*Did you mean 'Text'"),
        ('{"text": null, "label": "b"}', "a.jsonl:1: text is None; expected text"),
    ],
)
def test_bad_json_lines_are_refused(tmp_path, line, message):
    (tmp_path / "a.jsonl").write_text(line, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_labeled_texts(tmp_path / "a.jsonl")


def test_what_is_no_file_of_texts_is_refused(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        read_labeled_texts(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="does not exist"):
        read_labeled_texts(tmp_path / "none")
    with pytest.raises(ValueError, match="has no labeled text"):
        read_labeled_texts(tmp_path)
    (tmp_path / "a.doc").write_text("x", encoding="utf-8")
    with pytest.raises(ValueError, match=r"ends with \.doc; expected"):
        read_labeled_texts(tmp_path / "a.doc")
    write_csv(tmp_path / "test.csv", ROWS)
    with pytest.raises(ValueError, match="has test and no train"):
        read_labeled_texts(tmp_path)
    for name in ("train.csv", "train.tsv"):
        (tmp_path / name).write_text("text\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"has train.csv and train.tsv"):
        read_labeled_texts(tmp_path)


def test_a_test_split_without_a_known_class_is_refused(tmp_path):
    write_csv(tmp_path / "train.csv", ROWS)
    write_csv(tmp_path / "test.csv", [("one", "A")])
    with pytest.raises(ValueError, match="test has no text of a class in training"):
        read_labeled_texts(tmp_path)
