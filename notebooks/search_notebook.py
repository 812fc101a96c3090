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
# Three networks learn here, in small runs of a few minutes. The agent and the re-ranker are used
# as far as held-out queries allow, and *nothing* is among the choices: a step may gain nothing, but
# seldom does harm. The notebook runs from top to bottom without an edit, and downloads nothing.

# %%
# %matplotlib inline
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # hide the log lines of TensorFlow's start

# %%
from kytolly import configure_gpu_optimization

report = configure_gpu_optimization(
    enable_xla=True, enable_mixed_precision=False, memory_growth=True, verbose=True
)

# %%
import numpy as np
from matplotlib.figure import Figure

from kytolly.search import (
    BUILTIN,
    BM25Index,
    RankerConfig,
    ReformulationOptions,
    Reformulator,
    RetrievalOptions,
    Rewriter,
    RewriterConfig,
    SearchChain,
    TrainingOptions,
    identify_language,
    load_collection,
    main_language,
    make_tokenizer,
    paired_bootstrap,
    per_query,
    search_lines,
    train_ranker,
    train_reformulation,
    train_rewriter,
)

# %% [markdown]
# ## The collection, and what a gain is
#
# The built-in collection is made from the documentation of installed packages. A document is a
# docstring without its first sentence, this sentence is a query, and the document is its one right
# answer. The networks learn from *train* queries, *dev* queries help to decide what of them is
# used, and *test* queries are for the plot at the end.

# %% tags=["parameters"]
test_queries = 300
top = 10  # documents of a search
rewriter_options = {
    "epochs": 6,
    "units": 64,
    "vocabulary_size": 3_000,
    "num_buckets": 1,
    "held_out_folds": 2,
    "evaluation_interval_updates": 50,
}
agent_options = {"epochs": 1, "warm_start_epochs": 10, "held_out_folds": 0, "max_queries": 1_000}
candidates = 30  # terms of the first documents that the agent chooses from
ranker_options = {
    "epochs": 2,
    "depth": 20,  # documents of a search that are re-ranked
    "num_buckets": 1,
    "dev_queries": 100,
    "evaluation_interval_updates": 200,
}
seed = 0

# %%
collection = load_collection(BUILTIN, ("test",))
numbers = np.random.default_rng(seed).permutation(collection.split("test"))[:test_queries]
queries = {collection.query_ids[number]: collection.queries[number] for number in numbers}
texts = list(queries.values())
print(f"{len(collection.doc_ids):,} documents, {len(queries)} test queries, such as")
print(*(f"  {text}" for text in texts[:3]), sep="\n")

# %% [markdown]
# A search is a list of document ids for each query. Its metric is nDCG@10: 1 if the right document
# is on top, and 0 if it is not among the first ten.

# %%
METRIC = "ndcg@10"


def values(found):
    """nDCG@10 of each query, from the ids of the documents that were found."""
    rows = zip(queries, found, strict=True)
    run = {name: [(doc, -float(place)) for place, doc in enumerate(row)] for name, row in rows}
    judgments = {name: collection.judgments["test"][name] for name in queries}
    return np.array(list(per_query(judgments, run, [METRIC])[METRIC].values()))


def bm25(index, weights):
    """The best documents of BM25 for weighted queries."""
    documents, _ = index.search_batch(weights, top)
    return [[collection.doc_ids[doc] for doc in row if doc >= 0] for row in documents]


def ids(rows):
    """The ids of documents that were found."""
    return [[hit.doc_id for hit in row] for row in rows]


steps = {}  # name of a step -> nDCG@10 of each test query

# %% [markdown]
# ## 1. Classify
#
# A small network that comes with the package names the language of a text. The stemmer of the
# documents' language cuts words to their stems, so that *search* finds *searching*. The first bar
# of the plot is what stems and stop words gain over words as they are.
#
# A classifier for classes of your own, such as kinds of questions, is trained by
# `kytolly train classifier --data FILE` (`docs/text_classifier.md`).

# %%
for text in (texts[0], "Wo finde ich die Ergebnisse der Suche?", "¿Dónde está la red?"):
    found = identify_language(text)
    print(f"{found.name:<10}{found.probability:>6.1%}  {text[:70]}")
language, share = main_language(collection.texts[::20])
print(f"\n{share:.0%} of the documents are in {language}")

# %%
plain = BM25Index(collection.texts, make_tokenizer("none", "none"))
index = BM25Index(collection.texts, make_tokenizer(language))
for name, one in (("words as they are", plain), ("1 classify", index)):
    steps[name] = values(bm25(one, [one.query_weights(text) for text in texts]))
    print(f"{name:<20} {steps[name].mean():.4f}")

# %% [markdown]
# ## 2. Rewrite
#
# The rewriter reads a query, and writes the best terms of its relevant documents. The documents of
# a first search need not have them. Two more rewriters learn without half of the train queries
# each: the agent below needs to know how good the terms are for queries that a rewriter has not
# seen. (`docs/query_rewriter.md`)

# %%
cfg = RewriterConfig(seed=seed, **rewriter_options)
summary, lines = train_rewriter(cfg, BUILTIN)
print("\n".join(lines))
rewriter_run = summary["run_dir"]
written = Rewriter.load(rewriter_run).terms_of(texts)
for text, terms in list(zip(texts, written, strict=True))[:4]:
    print(f"{text[:50]:<52}{', '.join(term.term for term in terms[:6])}")

# %% [markdown]
# What are these terms worth by themselves? Here all of them join the query with one weight, where a
# typed word has 1. Expect no gain: this small rewriter knows the words of the collection, but few
# of them are right for one query.

# %%
for weight in (0.05, 0.1, 0.2, 0.4):
    added = [
        {term.term: weight for term in terms} | index.query_weights(text)
        for text, terms in zip(texts, written, strict=True)
    ]
    found = values(bm25(index, added))
    print(f"weight {weight:<5g} {found.mean():.4f}, {(found - steps['1 classify']).mean():+.4f}")
    if weight == 0.1:  # for the plot; nothing was chosen by these numbers
        steps["2 rewrite, alone"] = found

# %% [markdown]
# ## 3. Choose terms
#
# The rewriter's terms become candidates of the agent, beside those of the first documents that
# BM25 finds. The agent gives each candidate a weight of its own, mostly 0, and lowers words of the
# query. It learns from judgments, then from rewards (PPO). A test on dev queries decides
# what of it is used. (`docs/query_reformulation.md` and its notebook)

# %%
options = ReformulationOptions(
    collection=BUILTIN,
    seed=seed,
    retrieval=RetrievalOptions(candidates=candidates, language=language, rewriter=rewriter_run),
    training=TrainingOptions(use_amp=False, **agent_options),
)
agent_run = train_reformulation(options, test=False, say=print)["run_dir"]

# %%
made = Reformulator.load(agent_run, fusion=0.0).reformulate_all(queries, top)  # BM25 alone
steps["3 choose terms"] = values(ids(one.after for one in made))
print(f"test {steps['3 choose terms'].mean():.4f}")
sources = [term.source for one in made for term in one.added]
wrote = sum("generated" in source for source in sources)
print(f"{len(sources)} terms added, {wrote} of them the rewriter wrote")
for one in made[:4]:
    changes = [f"{term.surface} {term.weight:.2f}" for term in (*one.added[:4], *one.lowered[:2])]
    print(f"{one.text[:50]:<52}{', '.join(changes) or one.reason}")

# %% [markdown]
# ## 4. Search
#
# BM25 sees terms, and embeddings see meanings. The score of a document is that of BM25 plus a
# weight times the cosine of its embedding with the query's. The run chose this weight, and the
# agent knows it, so the terms are others than in step 3.

# %%
chain = SearchChain.load(agent_run)
found = chain.search(queries, top)
steps["4 search"] = values(ids(one.columns["reformulated"] for one in found))
print(f"weight of the cosines {chain.agent.fusion:g}, test {steps['4 search'].mean():.4f}")

# %% [markdown]
# ## 5. Re-rank
#
# The re-ranker reads a question and a document together, and scores what they have in common. It is
# slow, so it sees only the best documents of the agent's search. Its score counts beside that of
# the search, with a weight that dev queries chose; where it is no better than chance, the weight is
# 0 and the order stays. (`docs/text_ranker.md`)

# %%
cfg = RankerConfig(seed=seed, agent=agent_run, **ranker_options)
summary, lines = train_ranker(cfg, BUILTIN)
print("\n".join(lines))

# %%
chain = SearchChain.load(agent_run, ranker=summary["run_dir"])
found = chain.search(queries, top)
steps["5 re-rank"] = values(ids(one.columns["re-ranked"] for one in found))
print(f"weight {chain.weight:g}, test {steps['5 re-rank'].mean():.4f}")

# %% [markdown]
# ## What each step gains
#
# A bar is the gain of a step on the test queries, over the step before it. Step 3 begins where
# step 2 does, at step 1: the agent takes the rewriter's terms one by one. Lines are 95% intervals
# (paired bootstrap): where one crosses 0, the gain may be chance.

# %%
names = list(steps)
over = dict(zip(names[1:], names, strict=False)) | {"3 choose terms": "1 classify"}
gains = {name: paired_bootstrap(steps[name], steps[before]) for name, before in over.items()}
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
ax.set_ylabel("gain in nDCG@10")
first, last = steps[names[0]].mean(), steps[names[-1]].mean()
ax.set_title(f"{names[0]} {first:.3f}, the whole chain {last:.3f}, {len(queries)} test queries")
ax.spines[["top", "right"]].set_visible(False)
ax.grid(axis="y", alpha=0.25)
figure

# %% [markdown]
# ## One query
#
# `kytolly search RUN QUERY --ranker RUN` prints what each part of the chain finds. So does this:

# %%
one = chain.search(["solve a linear system of equations"], 5)[0]
documents = dict(zip(collection.doc_ids, collection.texts, strict=True))
print("\n".join(search_lines(one, documents)))

# %% [markdown]
# The runs are small. In longer ones, with the defaults of each command, the agent and the re-ranker
# gain more:
#
#     kytolly train rewriter --collection builtin --log-dir runs/rewriter
#     python train_optimized.py --collection builtin --rewriter runs/rewriter --log-dir runs/agent
#     kytolly train ranker --collection builtin --agent runs/agent --log-dir runs/ranker
#     kytolly search runs/ranker "solve a linear system of equations"
#
# For documents of your own, give a folder in BEIR's layout in place of `builtin`; this notebook
# takes one in place of `BUILTIN`. `docs/training_text_models.md` says how the three are trained.
