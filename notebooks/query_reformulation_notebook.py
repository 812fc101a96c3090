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
# # Learn to improve search queries
#
# A search engine that compares words misses documents that say the same thing in other words.
# Adding the right terms to a query helps, and adding the wrong ones hurts. This notebook trains an
# agent that gives every candidate term a weight. Then it shows the results: the learning curve, a
# table of what the agent gains beside other methods, the terms that it adds, and how rankings
# change. It runs from top to bottom without an edit, and downloads nothing.

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

from kytolly import plot_learning_curve
from kytolly.search import (
    BUILTIN,
    CalibrationBins,
    ReformulationOptions,
    Reformulator,
    RetrievalOptions,
    TrainingOptions,
    load_collection,
    per_query,
    plot_calibration,
    test_lines,
    train_reformulation,
)

# %% [markdown]
# ## 1. The collection
#
# A collection has documents, queries, and judgments that say which documents answer which query.
# The built-in collection is made from the documentation of installed packages. A document is a
# docstring without its first sentence, this sentence is a query, and the document is its one right
# answer. The judgments have three splits. The agent learns from *train*, *dev* decides what of it
# is used, and *test* is read once, after training. You can give a folder of your own instead of
# `BUILTIN`: section 5 says what it must contain.

# %%
collection = load_collection(BUILTIN, ("test",))
test_queries = {
    collection.query_ids[number]: collection.queries[number] for number in collection.split("test")
}
print(f"{len(collection.doc_ids):,} documents, {len(test_queries):,} test queries, such as")
for text in list(test_queries.values())[:3]:
    print(f"  {text}")

# %% [markdown]
# ## 2. Train
#
# An episode is one query and has one step: the agent gives each of its candidate terms a weight.
# Candidates come from the best documents of a first search. The reward is the change of nDCG@10,
# which is 1 if the right document is on top and 0 if it is not among the first ten. Training begins
# with the network that comes with the package. First it learns from the judgments directly (*warm
# start*), then from rewards (PPO). At the end, a test on dev queries decides which network is used,
# how strongly, and whether at all. The options here make a smaller run than the defaults, which
# `configs/msa_optimized_cpu.yaml` lists and explains.

# %% tags=["parameters"]
epochs = 10  # passes of PPO over the training queries
warm_start_epochs = 10
feedback_documents = 10
candidates = 30
max_terms = 20
seed = 0

# %%
options = ReformulationOptions(
    collection=BUILTIN,
    seed=seed,
    retrieval=RetrievalOptions(
        feedback_documents=feedback_documents, candidates=candidates, max_terms=max_terms
    ),
    training=TrainingOptions(epochs=epochs, warm_start_epochs=warm_start_epochs, use_amp=False),
)
summary = train_reformulation(options, test=True, say=print)
metric, run_dir = options.retrieval.metric, summary["run_dir"]

# %%
print(f"run folder              {run_dir}")
print(f"stopped by              {summary['stopped_by']}")
print(f"env steps of PPO        {summary['env_steps']:,}")
print(f"weight of the cosines   {summary['fusion']:g}")
print(f"network                 {summary['network']}")
for kind, choice in summary["choices"].items():
    print(f"choice, {kind:<15} scale {choice['scale']:g}, dev gain {choice['dev_gain']:+.4f}")
for name, spent in summary["phases"].items():
    print(f"  {name:<30}{spent['seconds']:>7.1f} s {spent['share']:>6.1%}")

# %% [markdown]
# ## 3. Learning curve
#
# Returns are gains in nDCG@10. In training episodes, PPO samples weights from its policy.
# Evaluations are greedy, over up to 300 training queries: dev queries are for the choice alone. The
# curve begins where the warm start ended. The band is wide because a few queries gain a lot and
# most cannot gain: their document is on top already, or out of reach.

# %%
plot_learning_curve(run_dir).figure

# %% [markdown]
# ## 4. How queries change
#
# With `test=True`, training ends with the test queries. Every one of them counts, even if it comes
# back unchanged. RM3 and Rocchio are classic methods, tuned on dev queries; BM25 itself is among
# their settings. *Cosines* are those of the embeddings of query and document, which a search can
# weigh beside BM25. The ceiling knows the right answers: no choice of candidates can gain much
# more.

# %%
print("\n".join(test_lines(summary["test"])))

# %% [markdown]
# The network also says how much it expects to gain. The queries are in ten bins by that number; the
# upper plot shows what they gained, the lower one the share that the agent changes.

# %%
plot_calibration(CalibrationBins(**summary["test"]["calibration"]), metric)

# %% [markdown]
# `Reformulator.load` loads a run, and then reformulates any query without reading a judgment. Here
# it reformulates the test queries again. Both rankings weigh cosines as the run chose.

# %%
reformulator = Reformulator.load(run_dir)
found = reformulator.reformulate_all(test_queries, top=1000)
judgments = collection.judgments["test"]
before = per_query(judgments, {one.query_id: one.before for one in found}, [metric])[metric]
after = per_query(judgments, {one.query_id: one.after for one in found}, [metric])[metric]
gain = {query: after[query] - before[query] for query in judgments}
changed = [one for one in found if one.reason is None]
print(f"{metric} before          {np.mean(list(before.values())):.4f}")
print(f"{metric} after           {np.mean(list(after.values())):.4f}")
print(f"queries that are changed {len(changed):,} of {len(found):,}")

# %% [markdown]
# The table shows the queries that gained most, some whose metric did not change, and the queries
# that lost most. The ranks are those of the right document, before and after. A dash means that it
# is not among the first 1,000.

# %%
by_gain = sorted(changed, key=lambda one: -gain[one.query_id])
unmoved = [one for one in by_gain if gain[one.query_id] == 0]
print(f"{'query':<62} {'added terms':<48} before after")
for one in by_gain[:6] + unmoved[:3] + by_gain[-4:]:
    (right,) = judgments[one.query_id]
    ranks = []
    for hits in (one.before, one.after):
        place = {hit.doc_id: rank for rank, hit in enumerate(hits, start=1)}
        ranks.append(str(place.get(right, "-")))
    terms = ", ".join(term.surface for term in one.added)
    print(f"{one.text[:60]:<62} {terms[:46]:<48} {ranks[0]:>6} {ranks[1]:>5}")

# %% [markdown]
# Each bar is a test query whose nDCG@10 changed, sorted by its gain. The mean gain is the blue area
# minus the red area, divided by the number of all test queries.

# %%
moved = np.array(sorted((value for value in gain.values() if value != 0), reverse=True))
figure = Figure(figsize=(8, 3.5), layout="constrained")
ax = figure.add_subplot()
ax.bar(np.arange(len(moved)), moved, width=1.0, color=np.where(moved > 0, "tab:blue", "tab:red"))
ax.axhline(0, color="0.3", lw=0.8)
ax.set_xlabel("test queries whose ranking gained or lost, sorted")
ax.set_ylabel(f"change of {metric}")
equal = len(gain) - len(moved)
ax.set_title(f"{(moved > 0).sum()} gained, {(moved < 0).sum()} lost, {equal} unchanged")
ax.spines[["top", "right"]].set_visible(False)
ax.grid(axis="y", alpha=0.25)
figure

# %% [markdown]
# ## 5. Use it
#
# Reformulate a query that you type. The output gives the reasons for each term: its rank among the
# candidates, the share of feedback documents that contain it, how rare it is (idf), how often it
# occurs together with a word of the query (npmi), and how close its embedding is to that of the
# query (cosine). Another search engine can use the line in Lucene's syntax; with `fusion=0.0` in
# `Reformulator.load`, the weights are those for an engine without embeddings.

# %%
print("\n".join(reformulator.reformulate("solve a linear system of equations", top=5).lines()))

# %% [markdown]
# The same works in a terminal, from this folder: for one query, or for a file of queries (JSON
# lines with `_id` and `text`), whose rankings are written in TREC's format. Without a run, the
# network of the package searches your documents; it needs no judgment:
#
#     kytolly reformulate runs/NAME "solve a linear system of equations"
#     kytolly reformulate runs/NAME --queries queries.jsonl --run-file reformulated.run
#     kytolly reformulate pretrained "solve a linear system" --collection FOLDER
#
# For documents of your own, put `corpus.jsonl`, `queries.jsonl`, `qrels/train.tsv`, `qrels/dev.tsv`
# and `qrels/test.tsv` into a folder (the layout of BEIR). Then train in the root of the repository:
#
#     python train_optimized.py --config configs/msa_optimized_cpu.yaml --collection FOLDER --test
#
# `docs/query_reformulation.md` explains how it works, all options, and the limits.
