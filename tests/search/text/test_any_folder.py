"""The run of a model of texts, whatever is in its folder and whatever it is called."""

import contextlib
import io
import shutil

import pytest
import yaml

from kytolly.command.exits import exit_status
from kytolly.search.model.cross_encoder import CrossEncoder
from kytolly.search.model.sequence_to_sequence import SequenceToSequence
from kytolly.search.model.text_classifier import TextClassifierNetwork
from kytolly.search.text.classifier import TextClassifier
from kytolly.search.text.ranker import Ranker
from kytolly.search.text.rewriter import Rewriter
from kytolly.search.text.vocabulary import Words
from tests.record.test_any_folder import ODD_NAMES, check_any_file, command

WORDS = Words(["apple", "road", "wheel"])


def load(kind):
    return lambda folder: exit_status(lambda: 0 * len(repr(kind.load(folder))))


USES = {
    "classifier": command("classify", "{run}", "{run}/../texts.txt", "--json"),
    "ranker": load(Ranker),
    "rewriter": load(Rewriter),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    home = tmp_path_factory.mktemp("folders")
    write_texts(home)
    return home


def write_texts(home):
    """The runs of models of texts."""
    for name in ("classifier", "ranker", "rewriter"):
        (home / name).mkdir()
        settings = {"algorithm": name} | ({"max_length": 64} if name == "ranker" else {})
        saved = {"environment": "a.csv", "versions": {"kytolly": "9.0.0"}, "settings": settings}
        (home / name / "config.yaml").write_text(yaml.safe_dump(saved))
    network = TextClassifierNetwork(WORDS.size, 2, dimension=4, filters=2)
    network.build((None, None))
    network.save(home / "classifier" / "best.keras")
    TextClassifier(network, ["a", "b"], 16, WORDS).save(home / "classifier")
    network = CrossEncoder(WORDS.size, 64, dimension=4, width=4, layers=1, heads=1)
    network.build((None, None))
    network.save(home / "ranker" / "best.keras")
    Ranker(network, WORDS, 0.5, None, "a", "b").save(home / "ranker")
    network = SequenceToSequence(WORDS.size, dimension=4, units=4, layers=1)
    network.build()
    network.save(home / "rewriter" / "best.keras")
    lengths = {"target": "terms", "max_source_length": 8, "max_target_length": 4}
    Rewriter(network, WORDS, lengths).save(home / "rewriter")


@pytest.mark.parametrize(
    "name", [ODD_NAMES[0], *(pytest.param(n, marks=pytest.mark.learning) for n in ODD_NAMES[1:])]
)
def test_a_run_is_used_whatever_its_folder_is_called(name, folders, tmp_path):
    for kind, use in USES.items():
        place = tmp_path / kind / name
        place.parent.mkdir()
        shutil.copytree(folders / kind, place)
        (tmp_path / kind / "texts.txt").write_text("an apple\n")
        with contextlib.redirect_stdout(io.StringIO()):
            assert use(place) == 0


@pytest.mark.parametrize(
    "kind",
    ["ranker", *(pytest.param(k, marks=pytest.mark.learning) for k in ("classifier", "rewriter"))],
)
@pytest.mark.parametrize("examples", [5, pytest.param(100, marks=pytest.mark.learning)])
def test_any_file_of_a_stranger_s_folder_is_used_or_refused_in_one_line(
    kind, examples, folders, tmp_path
):
    (tmp_path / "texts.txt").write_text("an apple\na wheel\n")
    check_any_file(kind, [USES[kind]], examples, folders, tmp_path)
