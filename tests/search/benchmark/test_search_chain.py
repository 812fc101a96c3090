"""The table that says what each part of the whole search adds."""

import numpy as np
import pytest

pytest.importorskip("wordllama")

from kytolly.search.benchmark.search_chain import SEARCHES, chain_report, chain_values, main
from kytolly.search.index.corpus import load_collection
from kytolly.search.reformulate.reformulator import Reformulator
from tests.search.text.ranked_texts import write_ranking


def test_each_row_is_compared_with_bm25_and_with_the_row_above():
    times = {"BM25": 2.0, "whole chain": 30.0}
    found = [
        {
            "values": dict(zip(SEARCHES, [[0.2, 0.4], [0.4, 0.6], [0.4, 0.8], last], strict=True)),
            "milliseconds": times,
            "weight": 0.1,
        }
        for last in ([0.4, 0.8], [0.6, 1.0])
    ]
    report = chain_report("data/faq", found)
    assert [row[:2] for row in report.rows] == [
        ["BM25", "0.3000"],
        ["fused", "0.5000"],
        ["reformulated", "0.6000"],
        ["re-ranked", "0.7000"],  # of the means of both seeds, 0.5 and 0.9
    ]
    assert report.rows[2][2:] == ["+0.3000 (+0.2000 to +0.4000)", "+0.1000 (+0.0000 to +0.2000)"]
    assert report.rows[3][2].startswith("+0.4000 (") and report.rows[3][3].startswith("+0.1000 (")
    assert report.data["milliseconds"] == times and "whole chain 30.0 ms" in report.notes[2]


@pytest.mark.learning
def test_a_chain_is_trained_and_measured_on_test_queries(tmp_path):
    folder = str(write_ranking(tmp_path / "data", topics=24))
    found = chain_values(folder, 0, agent="pretrained", quick=True)
    assert found["values"].keys() == set(SEARCHES) and found["weight"] >= 0.0
    collection = load_collection(folder, ("test",))
    agent, expected = Reformulator.pretrained(folder), []
    for query in collection.split("test"):
        hits = [hit.doc_id for hit in agent.search(collection.queries[query])]
        relevant = collection.doc_ids[collection.relevant(query, "test")[0]]
        place = hits.index(relevant) if relevant in hits else np.inf
        expected.append(1.0 / np.log2(place + 2))
    np.testing.assert_allclose(found["values"]["reformulated"], expected, atol=1e-6)
    assert 0 < found["milliseconds"]["BM25"] < found["milliseconds"]["whole chain"]


def test_runs_belong_to_one_collection(capsys):
    with pytest.raises(SystemExit):
        main(["a", "b", "--agent", "run"])
    assert "give one DIR" in capsys.readouterr().err
