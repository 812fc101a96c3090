"""Terms for training queries come from rewriters that have not seen them."""

import dataclasses
import json

import pytest

from kytolly.search.text import train_rewriter as module
from kytolly.search.text.held_out_terms import HELD_OUT_FILE, read_held_out, write_held_out
from kytolly.search.text.rewriter import Rewriter
from kytolly.search.text.rewriting_pairs import JudgedQuery, share_of_best
from kytolly.search.text.rewriting_words import Term
from kytolly.trainer import Trainer
from tests.search.reformulate.far_terms import TINY, make_rewriter, write_far_terms


def test_terms_come_back_from_their_file_for_as_many_updates(tmp_path):
    path, terms = tmp_path / "a.json", {"ä": [Term("x", -0.5)], "b": []}
    assert read_held_out(path) is None
    write_held_out(path, terms, 7)
    assert read_held_out(path) == read_held_out(path, 7) == terms and read_held_out(path, 8) is None


@pytest.mark.parametrize(
    "text", ["", "[]", '{"updates": 1}', '{"updates": 1, "terms": {"a": [["b", 0.5]]}}', "[" * 9999]
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=r"a\.json cannot be read \(.*: train it again") as error:
        read_held_out(tmp_path / "a.json")
    assert "\n" not in str(error.value)


@pytest.fixture(scope="module")
def known_by_heart(tmp_path_factory):
    """A collection whose dev queries are of other animals than the train queries, and a run."""
    folder = tmp_path_factory.mktemp("far")
    collection = write_far_terms(folder / "animals")
    for name, wanted in (("train", "01234"), ("dev", "5")):
        path = collection / "qrels" / f"{name}.tsv"
        rows = path.read_text("utf-8").splitlines()
        chosen = [row for row in rows[1:] if row.split("\t")[0][-1] in wanted]
        path.write_text("\n".join([rows[0], *chosen]) + "\n", "utf-8")
    return collection, make_rewriter(folder / "run", collection, held_out_folds=3)


@pytest.mark.learning
def test_held_out_terms_are_as_bad_as_those_of_new_queries(known_by_heart):
    _, run = known_by_heart
    held_out = read_held_out(run / HELD_OUT_FILE) or {}
    assert len(held_out) == 15 and all(len(row) == 2 for row in held_out.values())
    learned = [
        JudgedQuery(f"{word} {animal}", [], None, [f"being{k}", f"limb{k}"])
        for word in ("see", "a", "find")
        for k, animal in enumerate("cat dog horse bird fish".split())
    ]
    texts = [one.text for one in learned]
    known = Rewriter.load(run).terms_of(texts)
    assert share_of_best(learned, [[one.term for one in row] for row in known]) > 0.8
    others = [[one.term for one in held_out[text]] for text in texts]
    share = share_of_best(learned, others)
    assert share == 0.0  # no other animal is that being
    summary = json.loads((run / "result.json").read_text("utf-8"))
    assert summary["held_out"] == {"queries": 15, "term_share": share}
    assert (
        f"15 train queries, by rewriters that learned without them: {share:.3f}"
        in (module.lines(summary)[-1])
    )
    assert not (run / "held_out").exists()


@pytest.mark.learning
def test_an_interrupted_run_goes_on_with_the_parts_that_are_left(
    known_by_heart, tmp_path, monkeypatch, capsys
):
    collection, whole = known_by_heart
    began, train = [], Trainer.train_supervised

    def watched(trainer, *args, **kwargs):
        began.append(trainer.log_dir.name)
        if began == ["run", "0", "1"]:
            raise KeyboardInterrupt("of a part")
        return train(trainer, *args, **kwargs)

    monkeypatch.setattr(Trainer, "train_supervised", watched)
    cfg = dataclasses.replace(TINY, held_out_folds=3)
    with pytest.raises(KeyboardInterrupt, match=r"but not its held_out_terms.*--resume .*run`"):
        module.train_rewriter(cfg, collection, tmp_path / "run", progress=False)
    assert (tmp_path / "run" / "held_out" / "0.json").is_file()
    assert Rewriter.load(tmp_path / "run").terms("see cat")
    for _ in range(2):  # the second time, everything is there
        module.train_rewriter(cfg, collection, tmp_path / "run", resume=True)
    assert began == ["run", "0", "1", "run", "1", "2", "run"]
    shown = [
        line.partition(": 100 of 100 updates")[0] for line in capsys.readouterr().err.split("\n")
    ]
    for part in (2, 3):  # each says in its lines which one it is
        assert shown.count(f"animals, held-out terms, part {part} of 3") == 1
    assert read_held_out(tmp_path / "run" / HELD_OUT_FILE) == read_held_out(whole / HELD_OUT_FILE)
