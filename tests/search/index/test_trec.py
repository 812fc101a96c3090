"""Run files: written, read, and evaluated in the order in which they were written."""

import numpy as np
import pytest

from kytolly.search.index.trec import check_replaceable, read_run, write_run

RUN = {"q1": [("b", 2.0), ("a", 2.0), ("c", 2.0), ("d", 0.5)], "q2": [("a", -1.0)]}


def test_a_run_comes_back_in_its_order(tmp_path):
    path = tmp_path / "run.trec"
    write_run(path, RUN, tag="mine")
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.split() == ["q1", "Q0", "b", "1", "2", "mine"]
    back = read_run(path)
    for query, found in RUN.items():
        assert [doc for doc, _ in back[query]] == [doc for doc, _ in found]
        np.testing.assert_allclose([s for _, s in back[query]], [s for _, s in found], rtol=1e-6)


def test_ties_are_evaluated_as_written(tmp_path):
    import ir_measures

    path = tmp_path / "run.trec"
    write_run(path, RUN)
    for first, second in (("b", "a"), ("a", "c")):  # trec_eval alone would rank c, b, a
        qrels = {"q1": {second: 1}}
        place = [doc for doc, _ in RUN["q1"]].index(second) + 1
        for measure in (ir_measures.AP, ir_measures.RR @ 10):
            run = list(ir_measures.read_trec_run(str(path)))
            found = ir_measures.calc_aggregate([measure], qrels, run)[measure]
            assert found == pytest.approx(1 / place), (first, measure)


@pytest.mark.parametrize(
    "line",
    ["q1 Q0 a 1 2.0", "q1 Q0 a first 2.0 tag", "q1 Q0 a 1 high tag", "q1 Q0 a 1 nan tag"],
)
def test_malformed_lines_are_named(tmp_path, line):
    path = tmp_path / "run.trec"
    path.write_text("q1 Q0 b 1 3.0 tag\n\n" + line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"run.trec:3: found .*expected six columns"):
        read_run(path)


def test_repeated_documents_missing_files_and_spaced_tags_are_refused(tmp_path):
    path = tmp_path / "run.trec"
    path.write_text("q1 Q0 b 1 3.0 tag\nq1 Q0 b 2 2.0 tag\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"run.trec:2: document 'b' is twice"):
        read_run(path)
    with pytest.raises(ValueError, match="does not exist"):
        read_run(tmp_path / "nothing")
    with pytest.raises(ValueError, match="without spaces"):
        write_run(path, RUN, tag="my run")


def test_a_run_that_is_not_utf8_is_named_with_its_line(tmp_path):
    (tmp_path / "run.trec").write_bytes(b"q1 Q0 b 1 3.0 tag\nq1 Q0 \xff 2 2.0 tag\n")
    with pytest.raises(ValueError, match=r"run.trec:2: not UTF-8"):
        read_run(tmp_path / "run.trec")


def test_only_our_own_run_may_be_replaced(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(path)
    for free in (path, link, "/dev/null"):
        check_replaceable(free, "--run-file")
    path.touch()
    check_replaceable(link, "--run-file")
    write_run(path, RUN)
    check_replaceable(link, "--run-file")
    write_run(path, RUN, tag="another")
    for text in (None, b'{"_id": "q1", "text": "kytolly"}\n', b"\x00\xff", b"q Q0 d 1 2 kytolly"):
        if text is not None:
            path.write_bytes(text)
        with pytest.raises(
            ValueError, match=r"exists, and it is no run file .* another --run-file"
        ):
            check_replaceable(link, "--run-file")
