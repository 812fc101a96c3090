"""Documents in other languages: stems, stop words and candidates are of their own language."""

import dataclasses
import json
import shutil
import warnings

import pytest

from kytolly.command import entry
from kytolly.search.chain import SearchChain
from kytolly.search.index.tokens import make_tokenizer, stop_word_lists
from kytolly.search.reformulate.choice import Choice, write_choices
from kytolly.search.reformulate.network import PRETRAINED
from kytolly.search.reformulate.options import options_from, read_options
from kytolly.search.reformulate.ppo_training import save_search
from kytolly.search.reformulate.reformulator import Reformulator
from kytolly.search.reformulate.search import SearchContext
from kytolly.search.reformulate.train import prepare
from tests.search.reformulate.tiny_collection import SETTINGS

pytestmark = pytest.mark.usefixtures("every_change_pays")

# ruff: noqa: RUF001  Turkish has an i without a dot
# Language -> a query, the stem that it shares with documents which spell it otherwise, and those.
TEXTS = {
    "german": (
        "Wie entstehen die Höhlen im Gletscher?",
        "gletsch",
        """Das Schmelzwasser fließt im Sommer durch die Spalten des Gletschers und höhlt das Eis.
        In der Höhle unter dem Gletscher war das Eis so blau wie nirgends sonst auf der Welt.
        Die warme Luft strömt durch die Höhlen und lässt das Eis von innen schmelzen.
        Die Gletscher der Alpen haben in den letzten Jahren viel Eis verloren.
        Der Bäcker backt jeden Morgen das Brot, bevor die ersten Kunden kommen.
        Die Katze schläft auf dem Sofa, weil die Sonne durch das Fenster scheint.
        Mit dem Fahrrad fahren die Kinder zur Schule, wenn es nicht regnet.
        Das Konzert begann mit einer Sonate, die das Publikum begeisterte.
        Wir haben gestern ein Haus gesehen, das sehr alt und doch gut erhalten ist.
        Er las die Zeitung und trank dabei seinen Kaffee ohne Zucker.""",
    ),
    "french": (
        "Comment se forment les grottes dans le glacier ?",
        "glaci",
        """L'eau de fonte coule en été dans les crevasses des glaciers et creuse la glace.
        Dans la grotte, sous le glacier, la glace était plus bleue que partout ailleurs.
        L'air chaud passe dans les grottes et la glace fond de l'intérieur.
        Les glaciers des Alpes ont perdu beaucoup de glace ces dernières années.
        Le boulanger prépare le pain chaque matin avant que les clients arrivent.
        Le chat dort sur le canapé parce que le soleil entre par la fenêtre.
        Les enfants vont à l'école en vélo quand il ne pleut pas.
        Le concert a commencé avec une sonate qui a ravi le public.
        Nous avons vu hier une maison qui est très ancienne mais bien conservée.
        Il lisait le journal et buvait son café sans sucre.""",
    ),
    "spanish": (
        "¿Cómo se forman las cuevas en el glaciar?",
        "cuev",
        """El agua del deshielo corre en verano por las grietas de los glaciares y excava el hielo.
        En la cueva, debajo del glaciar, el hielo era más azul que en ninguna otra parte.
        El aire caliente pasa por las cuevas y derrite el hielo desde dentro.
        Los glaciares de los Alpes han perdido mucho hielo en los últimos años.
        El panadero hace el pan todas las mañanas antes de que lleguen los clientes.
        El gato duerme en el sofá porque el sol entra por la ventana.
        Los niños van a la escuela en bicicleta cuando no llueve.
        El concierto comenzó con una sonata que entusiasmó al público.
        Ayer vimos una casa que es muy antigua pero está bien conservada.
        Leía el periódico y tomaba su café sin azúcar.""",
    ),
    "turkish": (
        "Buzuldaki mağaralar nasıl oluşur?",
        "buzul",
        """Eriyen su yazın buzulların çatlaklarından akar ve buzu bu şekilde oyar.
        Buzulun altındaki bir mağarada buz dünyanın her yerinden daha maviydi.
        Sıcak hava mağaraların içinden geçer ve buzu içeriden eritir.
        Alplerdeki buzullar son yıllarda çok fazla buz kaybetti.
        Fırıncı her sabah ilk müşteriler gelmeden önce bir ekmek pişirir.
        Kedi koltukta uyuyor çünkü güneş bu pencereden içeri giriyor.
        Çocuklar yağmur yağmadığı zaman okula bisikletle gider.
        Konser bir sonat ile başladı ve bu sonat dinleyicileri coşturdu.
        Dün çok eski ama iyi korunmuş bir ev gördük.
        Gazetesini okuyor ve bir yandan da şekersiz kahve içiyordu.""",
    ),
}


def write_texts(folder, language):
    _, _, texts = TEXTS[language]
    rows = [{"_id": f"d{n}", "text": line.strip()} for n, line in enumerate(texts.splitlines())]
    folder.mkdir(exist_ok=True)
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": TEXTS[language][0]}))
    return folder


@pytest.fixture(scope="module", params=sorted(TEXTS))
def spoken(request, tmp_path_factory):
    """A language, and a folder with documents in it."""
    return request.param, write_texts(tmp_path_factory.mktemp("texts") / "data", request.param)


def test_pretrained_reads_documents_in_their_language(spoken):
    pytest.importorskip("wordllama")
    language, folder = spoken
    query, stem, texts = TEXTS[language]
    reformulator = Reformulator.pretrained(folder)
    retrieval = reformulator.context.options.retrieval
    assert (retrieval.language, retrieval.stop_words) == (language, language)
    found = reformulator.reformulate(query, top=4)
    assert found.weights[stem] == 1.0
    holders = {f"d{n}" for n, text in enumerate(texts.splitlines()) if stem in text.lower()}
    plain = Reformulator.pretrained(folder, fusion=0.0).reformulate(query, top=4)
    assert {hit.doc_id for hit in plain.before} >= holders and len(holders) > 1
    stop_words = stop_word_lists()[language]
    assert found.added and not {term.surface for term in found.added} & stop_words
    assert not {"how", *stop_words} & set(found.words)
    english = Reformulator.pretrained(folder, language="english").reformulate(query, top=4)
    assert english.words.keys() & stop_words  # what the language changes: before, they were typed


def test_without_a_list_what_many_documents_hold_is_no_candidate(tmp_path):
    pytest.importorskip("wordllama")
    folder = write_texts(tmp_path / "data", "german")
    mined = {}
    context = Reformulator.pretrained(folder, language="none").context
    asked = context.collection.with_queries(("",), ("Gletscher",))
    for unknown in (True, False):
        (query,) = dataclasses.replace(context, unknown=unknown).mine(asked, [0], [])
        mined[unknown] = set(query.candidates)
    common = {"der", "die", "das", "eis"}  # in 3 or more of 10 documents
    assert not common & mined[True] and {"welt", "blau"} <= mined[True]
    assert {"das", "eis"} <= mined[False]


@pytest.mark.parametrize("flags", [[], ["--language", "auto"]])
def test_commands_take_the_language(flags, tmp_path, capsys):
    pytest.importorskip("wordllama")
    folder, query = write_texts(tmp_path / "data", "german"), TEXTS["german"][0]
    argv = ["pretrained", query, "--collection", str(folder), "--json", *flags]
    for command in ("reformulate", "search"):
        assert entry.main([command, *argv]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["added"] and not {"die", "im"} & {term["surface"] for term in found["added"]}
    assert entry.main(["reformulate", *argv[:5], "--language", "germn"]) == 2
    assert "Did you mean 'german'?" in capsys.readouterr().err


def test_a_chain_reads_documents_in_their_language(tmp_path):
    pytest.importorskip("wordllama")
    folder = write_texts(tmp_path / "data", "turkish")
    chain = SearchChain.load("pretrained", str(folder))
    assert chain.first.index.tokenizer.identity == make_tokenizer("turkish", "turkish").identity


def test_training_says_that_documents_are_in_another_language(tmp_path):
    folder, lines = write_texts(tmp_path / "data", "german"), []
    options = options_from({**SETTINGS, "collection": str(folder)})
    prepare(options, lines.append, ())
    assert any("most documents are in German" in line for line in lines)
    lines.clear()
    german = {**SETTINGS["retrieval"], "language": "auto"}
    context = prepare(
        options_from({**SETTINGS, "retrieval": german, "collection": str(folder)}), lines.append, ()
    ).context
    assert context.options.retrieval.stop_words == "german"
    assert not any("German" in line for line in lines)


def test_a_run_keeps_its_stop_words(tmp_path):
    """One of an earlier version, whose `auto` knew only English, keeps its index and its terms."""
    folder = write_texts(tmp_path / "data", "german")
    old = {**SETTINGS["retrieval"], "language": "german", "stop_words": "none"}
    context = SearchContext.load(
        options_from({**SETTINGS, "retrieval": old, "collection": str(folder)}), ()
    )
    run = tmp_path / "run"
    run.mkdir()
    save_search(context, run)
    path = run / "reformulation.yaml"
    assert read_options(path).retrieval.stop_words == "none"
    path.write_text(path.read_text().replace("stop_words: none", "stop_words: auto"))
    shutil.copy(PRETRAINED, run / "best.keras")
    write_choices(run, 0.0, [Choice(0.0, 0.5)], context.index.digest)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = Reformulator.load(run)
    assert loaded.choices.fusion == 0.0
    assert loaded.context.index.tokenizer.identity == make_tokenizer("german", "none").identity
    with pytest.warns(UserWarning, match="trained with another language"):
        other = Reformulator.load(run, language="auto")
    assert other.context.index.tokenizer.identity == make_tokenizer("german", "german").identity
    assert other.choices.fusion is None and other.context.unknown
