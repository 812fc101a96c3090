"""What the package's network gains is compared with the queries as they were typed."""

import pytest

from kytolly.benchmarks.suite import Options, Watch, progress_display
from kytolly.search.benchmark.query_zero_shot import reformulation_zero_shot
from kytolly.search.reformulate.choice import LOWEST
from kytolly.search.reformulate.gain_model import GainModel
from kytolly.search.reformulate.reformulator import Reformulator
from tests.search.reformulate.tiny_collection import write_collection


def test_gains_are_those_of_pretrained(tmp_path, monkeypatch):
    pytest.importorskip("wordllama")
    monkeypatch.setenv("KYTOLLY_SEARCH_CACHE", "off")
    monkeypatch.setattr(GainModel, "margin", lambda model, fusion: LOWEST)  # every change pays
    folder = write_collection(tmp_path / "tiny")
    report = reformulation_zero_shot(Options(collection=str(folder)), Watch(progress_display()))
    plain, fused = report.data["rows"]
    assert (plain["fusion"], fused["fusion"]) == (0.0, 1.0)
    agent = Reformulator.pretrained(folder, fusion=0.0)
    queries = {f"q{k}.{n}": f"key{k} noise{n}" for k in range(11, 14) for n in range(3)}
    queries["empty-test"] = "the of and"
    found = agent.reformulate_all(queries, top=1_000)
    differ = [[h.doc_id for h in one.before] != [h.doc_id for h in one.after] for one in found]
    assert plain["gain"]["changed"] == pytest.approx(sum(differ) / len(differ))
    assert any(differ) and report.notes[0].startswith("10 queries, language ")
