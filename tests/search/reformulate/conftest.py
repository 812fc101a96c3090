import pytest

from kytolly.search.reformulate.reformulator import Reformulator
from kytolly.search.reformulate.train import train
from tests.search.reformulate.tiny_collection import make_options, write_collection


@pytest.fixture(scope="session")
def collection(tmp_path_factory):
    return write_collection(tmp_path_factory.mktemp("data") / "tiny")


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """Training without XLA, which takes half of the time; tests/command compiles a run."""
    monkeypatch.setenv("KYTOLLY_XLA", "off")


@pytest.fixture(scope="session")
def run(collection, tmp_path_factory):
    """A run with its summary and the lines of its progress display."""
    folder, lines = tmp_path_factory.mktemp("runs") / "a", []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KYTOLLY_XLA", "off")
        summary = train(make_options(collection), log_dir=folder, test=True, say=lines.append)
    return folder, summary, lines


@pytest.fixture(scope="session")
def reformulator(run):
    return Reformulator.load(run[0])
