# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Search in five steps
#
# A search is a chain. This notebook builds one, and measures what each of its steps gains:
#
# 1. *Classify*: which language is a text in? That picks the stemmer and the stop words.
# 2. *Rewrite*: a network writes terms that the answer may have and the query lacks.
# 3. *Choose terms*: an agent gives every term a weight, and lowers words that say little.
# 4. *Search*: BM25, and the cosines of embeddings beside it.
# 5. *Re-rank*: a network reads question and document together.
#
# Three networks learn here, in small runs of a few minutes. Each step is used as far as dev queries
# allow, and *nothing* is among the choices: a step may gain nothing, but seldom does harm. The
# notebook runs from top to bottom without an edit, and downloads nothing.

# %%
# %matplotlib inline
import itertools
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # hide the log lines of TensorFlow's start
sys.path.insert(0, str(Path.cwd().parent))  # the repository, if the package is not installed

# %%
from kytolly.machine.configure import configure_gpu_optimization

report = configure_gpu_optimization(
    enable_xla=True, enable_mixed_precision=False, memory_growth=True, verbose=True
)

# %%
import numpy as np
from matplotlib.figure import Figure

from kytolly.config.ranker import RankerConfig
from kytolly.config.rewriter import RewriterConfig
from kytolly.reformulation.options import ReformulationOptions, RetrievalOptions, TrainingOptions
from kytolly.reformulation.reformulator import Reformulator
from kytolly.reformulation.train import train
from kytolly.retrieval.bm25 import BM25Index
from kytolly.retrieval.collection import BUILTIN
from kytolly.retrieval.corpus import load_collection
from kytolly.retrieval.metrics import paired_bootstrap, per_query
from kytolly.retrieval.significance import CHANCE, best_row
from kytolly.retrieval.tokens import make_tokenizer
from kytolly.text.language import identify_language, main_language
from kytolly.text.ranker import Ranker
from kytolly.text.rewriter import Rewriter
from kytolly.text.train_ranker import train_ranker
from kytolly.text.train_rewriter import train_rewriter

# %% [markdown]
# ## The collection, and what a gain is
#
# The built-in collection is made from the documentation of installed packages. A document is a
# docstring without its first sentence, this sentence is a query, and the document is its one right
# answer. The networks learn from *train* queries, *dev* queries decide what of them is used, and
# *test* queries are for the plot at the end.

# %% tags=["parameters"]
queries_per_split = 300  # dev and test queries that are searched for here
top = 10  # documents of a search, which the last step re-ranks
rewriter_options = {"epochs": 6, "units": 64, "vocabulary_size": 3_000, "num_buckets": 1}
agent_options = {"epochs": 1, "warm_start_epochs": 10, "held_out_folds": 0, "max_queries": 1_000}
candidates = 30  # terms that the agent chooses from
ranker_options = {"samples": 800, "epochs": 1, "num_buckets": 1, "dev_queries": 40}
seed = 0

# %%
collection = load_collection(BUILTIN, ("train", "dev", "test"))
rng = np.random.default_rng(seed)
numbers = {
    split: np.sort(rng.permutation(collection.split(split))[:queries_per_split]).tolist()
    for split in ("dev", "test")
}
texts = {split: [collection.queries[n] for n in numbers[split]] for split in numbers}
print(f"{len(collection.doc_ids):,} documents, {len(numbers['test'])} test queries, such as")
print(*(f"  {text}" for text in texts["test"][:3]), sep="\n")

# %% [markdown]
# A search is a list of document ids for each query. Its metric is nDCG@10: 1 if the right document
# is on top, and 0 if it is not among the first ten.

# %%
METRIC = "ndcg@10"


def values(split, found):
    """nDCG@10 of each query of a split, from the ids of the documents that were found."""
    names = [collection.query_ids[number] for number in numbers[split]]
    run = {
        name: [(doc, -float(place)) for place, doc in enumerate(docs)]
        for name, docs in zip(names, found, strict=True)
    }
    judgments = {name: collection.judgments[split][name] for name in names}
    return np.array(list(per_query(judgments, run, [METRIC])[METRIC].values()))


def bm25(index, weights):
    """The best documents of BM25 for weighted queries."""
    documents, _ = index.search_batch(weights, top)
    return [[collection.doc_ids[doc] for doc in row if doc >= 0] for row in documents]


steps = {}  # name of a step -> nDCG@10 of each test query

# %% [markdown]
# ## 1. Classify
#
# A small network that comes with the package names the language of a text. The stemmer of the
# documents' language cuts words to their stems, so that *search* finds *searching*. The plot begins
# with a search for words as they are; its first bar is what stems and stop words gain.
#
# A classifier for classes of your own, such as kinds of questions, is trained by
# `kytolly train classifier --data FILE` (`docs/text_classifier.md`).

# %%
for text in (texts["test"][0], "Wo finde ich die Ergebnisse der Suche?", "¿Dónde está la red?"):
    found = identify_language(text)
    print(f"{found.name:<10}{found.probability:>6.1%}  {text[:70]}")
language, share = main_language(collection.texts[::20])
print(f"\n{share:.0%} of the documents are in {language}")

# %%
plain = BM25Index(collection.texts, make_tokenizer("none", "none"))
index = BM25Index(collection.texts, make_tokenizer(language))
for name, one in (("words as they are", plain), ("1 classify: stems", index)):
    steps[name] = values("test", bm25(one, [one.query_weights(text) for text in texts["test"]]))
    print(f"{name:<20} {steps[name].mean():.4f}")

# %% [markdown]
# ## 2. Rewrite
#
# The rewriter reads a query, and writes the best terms of its relevant documents. The documents of
# a first search need not have them. They are added with one weight: the best one on dev, if a
# permutation test says that its gain is no chance, and else 0. (`docs/query_rewriter.md`)

# %%
cfg = RewriterConfig(seed=seed, **rewriter_options)
summary, lines = train_rewriter(cfg, BUILTIN)
print("\n".join(lines))
rewriter = Rewriter.load(summary["run_dir"])
written = {split: rewriter.terms_of(texts[split]) for split in texts}
for text, terms in list(zip(texts["test"], written["test"], strict=True))[:4]:
    print(f"{text[:60]:<62}{', '.join(term.term for term in terms[:6])}")


# %%
def with_terms(weights, terms, weight):
    """A weighted query with terms added, all with one weight."""
    new = {term.term: weight for term in terms if weight and term.term not in weights}
    return {**weights, **new}


def rewritten(split, weights, weight):
    """Weighted queries of a split with the rewriter's terms."""
    pairs = zip(weights, written[split], strict=True)
    return [with_terms(own, terms, weight) for own, terms in pairs]


typed = {split: [index.query_weights(text) for text in texts[split]] for split in texts}
before = values("dev", bm25(index, typed["dev"]))
weights = (0.02, 0.05, 0.1, 0.2, 0.4)
on_dev = [values("dev", bm25(index, rewritten("dev", typed["dev"], one))) for one in weights]
place, chance = best_row(np.array(on_dev) - before, CHANCE, seed)
best_weight = 0.0 if place is None else weights[place]
for one, found in zip(weights, on_dev, strict=True):
    print(f"weight {one:<5g} dev {found.mean():.4f}, {found.mean() - before.mean():+.4f}")
print(f"chance that the best of them gains as much where none helps: {chance:.0%}")
steps["2 rewrite"] = values("test", bm25(index, rewritten("test", typed["test"], best_weight)))
print(f"weight {best_weight:g}: test {steps['2 rewrite'].mean():.4f}")

# %% [markdown]
# ## 3. Choose terms
#
# The agent gives each candidate term a weight of its own, and lowers words of the query. It learns
# from judgments, then from rewards (PPO). A test on held-out queries decides what of it is used.
# The rewriter's terms stay, with their weight. (`docs/query_reformulation.md` and its notebook)

# %%
options = ReformulationOptions(
    collection=BUILTIN,
    seed=seed,
    retrieval=RetrievalOptions(candidates=candidates, language=language),
    training=TrainingOptions(use_amp=False, **agent_options),
)
agent_run = train(options, test=False, say=print)["run_dir"]

# %%
reformulator = Reformulator.load(agent_run, fusion=0.0)  # BM25 alone
plans = reformulator.plans(collection, numbers["test"])
chosen = rewritten("test", [plan.weights for plan in plans], best_weight)
steps["3 choose terms"] = values("test", bm25(index, chosen))
print(f"test {steps['3 choose terms'].mean():.4f}")
for text, plan in list(zip(texts["test"], plans, strict=True))[:4]:
    changed = sorted(plan.changes.items(), key=lambda item: -item[1])[:5]
    terms = [f"{plan.query.surfaces[place]} {weight:.2f}" for place, weight in changed]
    print(f"{text[:50]:<52}{', '.join(terms) or plan.reason}")

# %% [markdown]
# ## 4. Search
#
# BM25 sees terms, and embeddings see meanings. The score of a document is that of BM25 plus a
# weight times the cosine of its embedding with the query's. The run chose this weight, and the
# agent knows it, so the terms are others than in step 3.

# %%
reformulator = Reformulator.load(agent_run)
plans = reformulator.plans(collection, numbers["test"])
plans = [
    plan._replace(weights=weights)
    for plan, weights in zip(
        plans, rewritten("test", [plan.weights for plan in plans], best_weight), strict=True
    )
]
_, hits = reformulator.rankings(collection, numbers["test"], plans, top)
steps["4 search"] = values("test", [[hit.doc_id for hit in row] for row in hits])
print(f"weight of the cosines {reformulator.fusion:g}, test {steps['4 search'].mean():.4f}")

# %% [markdown]
# ## 5. Re-rank
#
# The re-ranker is a Transformer that reads question and document together. It is slow, so it sees
# the best documents only. Its score counts beside that of the search, with a weight that dev
# queries chose; where it is no better than chance, the weight is 0 and the order stays.
# (`docs/text_ranker.md`)

# %%
cfg = RankerConfig(seed=seed, depth=top, **ranker_options)
summary, lines = train_ranker(cfg, BUILTIN)
print("\n".join(lines))
ranker = Ranker.load(summary["run_dir"])

# %%
found = []
for text, row in zip(texts["test"], hits, strict=True):
    documents = [collection.texts[collection.doc_index[hit.doc_id]] for hit in row]
    if ranker.weight and row:
        order = ranker.rank(text, documents, [hit.score for hit in row])
        row = [row[one.place] for one in order]
    found.append([hit.doc_id for hit in row])
steps["5 re-rank"] = values("test", found)
print(f"weight {ranker.weight:g}, test {steps['5 re-rank'].mean():.4f}")

# %% [markdown]
# ## What each step gains
#
# A bar is the gain of a step over the step before it, on the test queries. Lines are 95% intervals
# (paired bootstrap): where one crosses 0, the gain may be chance.

# %%
names = list(steps)
gains = {
    name: paired_bootstrap(steps[name], steps[before]) for before, name in itertools.pairwise(names)
}
print(f"{'step':<20}nDCG@10     gain  95% interval")
print(f"{names[0]:<20}{steps[names[0]].mean():7.4f}")
for name, (gain, low, high) in gains.items():
    print(f"{name:<20}{steps[name].mean():7.4f}  {gain:+.4f}  {low:+.4f} to {high:+.4f}")

# %%
middle = np.array([gain for gain, _, _ in gains.values()])
ends = np.array([[gain - low, high - gain] for gain, low, high in gains.values()]).T
figure = Figure(figsize=(8, 4), layout="constrained")
ax = figure.add_subplot()
colors = np.where(middle > 0, "tab:blue", "tab:red")
ax.bar(list(gains), middle, yerr=ends, color=colors, capsize=4, width=0.6)
ax.axhline(0, color="0.3", lw=0.8)
ax.set_ylabel("gain in nDCG@10 over the step before")
first, last = steps[names[0]].mean(), steps[names[-1]].mean()
ax.set_title(f"{names[0]} {first:.3f}, the whole chain {last:.3f}, {len(found)} test queries")
ax.spines[["top", "right"]].set_visible(False)
ax.grid(axis="y", alpha=0.25)
figure

# %% [markdown]
# The runs are small. In longer ones, with the defaults of each command, the agent and the re-ranker
# gain more:
#
#     kytolly train rewriter --collection builtin
#     python train_optimized.py --collection builtin --test
#     kytolly train ranker --collection builtin
#
# For documents of your own, give a folder in BEIR's layout in place of `builtin`; this notebook
# takes one in place of `BUILTIN`. `docs/training_text_models.md` says how the three are trained.
