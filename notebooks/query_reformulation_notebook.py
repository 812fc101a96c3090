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
# A search engine that compares words misses documents that say the same in other words. Adding the
# right terms to a query helps; adding the wrong ones hurts. This notebook trains an agent that
# decides which terms to add, and when to stop, and looks at what it learnt: the learning curve, the
# terms it adds, what they do to rankings, and how many queries gain and lose. It runs from top to
# bottom without an edit, and downloads nothing.

# %%
# %matplotlib inline
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's own chatter stays away
sys.path.insert(0, str(Path.cwd().parent))  # the repository's root, where it is not installed

# %%
from kytolly.machine.configure import configure_gpu_optimization

report = configure_gpu_optimization(
    enable_xla=True, enable_mixed_precision=False, memory_growth=True, verbose=True
)

# %%
import numpy as np
from matplotlib.figure import Figure

from kytolly.record.pictures import plot_learning_curve
from kytolly.reformulation.options import ReformulationOptions, RetrievalOptions, TrainingOptions
from kytolly.reformulation.reformulator import Reformulator
from kytolly.reformulation.train import train
from kytolly.retrieval.corpus import BUILTIN, load_collection
from kytolly.retrieval.metrics import paired_bootstrap, per_query

# %% [markdown]
# ## 1. The collection
#
# Documents, queries, and judgments of which documents answer which query. The built-in collection
# is made of the documentation of installed packages: a document is a docstring without its first
# sentence, that sentence is a query, and the document is the one right answer. The judgments come
# in three splits: *train* teaches, *dev* decides when to stop and which weights to keep, and *test*
# is looked at once, in section 4. In place of `BUILTIN` you can give a folder of your own: section
# 5 says what has to be in it.

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
# An episode is one query. Each step adds one of its candidate terms, which come from the best
# documents of a first search, or stops; the reward is the change of nDCG@10, which is 1 where the
# right document is on top and 0 where it is not among the first ten. Before PPO begins, the network
# learns to foresee what each single term would gain (*warm start*). The settings are smaller than
# the defaults, which `configs/msa_optimized_cpu.yaml` lists and explains.

# %% tags=["parameters"]
epochs = 10  # of PPO
warm_start_epochs = 12
feedback_documents = 10
candidates = 30
max_terms = 5
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
summary = train(options, say=print)
metric, run_dir = options.retrieval.metric, summary["run_dir"]

# %%
print(f"run folder              {run_dir}")
print(f"stopped by              {summary['stopped_by']}")
print(f"env steps of PPO        {summary['env_steps']:,}")
print(f"dev gain in {metric}     {summary['dev_gain']['kept']:+.4f}")
for name, spent in summary["profile"].items():
    print(f"  {name:<30}{spent['seconds']:>7.1f} s {spent['share']:>6.1%}")

# %% [markdown]
# ## 3. Learning curve
#
# Returns are gains in nDCG@10. Training episodes of PPO try terms at random around the policy's own
# choice; evaluations are greedy, over all dev queries. The curve begins where the warm start
# ended. The band is wide because most queries cannot gain (their document is on top already, or out
# of reach) and a few gain a lot.

# %%
plot_learning_curve(run_dir).figure

# %% [markdown]
# ## 4. What it does to queries
#
# `Reformulator.load` takes a run and reformulates any queries; it reads no judgment. Here it gets
# the test queries, which were in no part of training. Every one of them counts, also those that
# come back unchanged.

# %%
reformulator = Reformulator.load(run_dir)
found = reformulator.reformulate_all(test_queries, top=1000)
judged = collection.judgments["test"]
before = per_query(judged, {one.query_id: one.before for one in found}, [metric])[metric]
after = per_query(judged, {one.query_id: one.after for one in found}, [metric])[metric]
gain = {query: after[query] - before[query] for query in judged}

# %%
mean, low, high = paired_bootstrap(list(after.values()), list(before.values()))
changed = {one.query_id for one in found if one.added}
print(f"{metric} of BM25          {np.mean(list(before.values())):.4f}")
print(f"{metric} reformulated     {np.mean(list(after.values())):.4f}")
print(f"difference               {mean:+.4f} (95% interval {low:+.4f} to {high:+.4f})")
print(f"queries with added terms {len(changed):,} of {len(found):,}")
print(f"gained, lost             {sum(g > 0 for g in gain.values()):,}, ", end="")
print(f"{sum(g < 0 for g in gain.values()):,}")

# %% [markdown]
# The queries that gained most and lost most, and some whose terms changed nothing that counts. The
# ranks are those of the right document, before and after; a dash means that it is not among the
# first 1,000.

# %%
by_gain = sorted((one for one in found if one.added), key=lambda one: -gain[one.query_id])
unmoved = [one for one in by_gain if gain[one.query_id] == 0]
print(f"{'query':<62} {'added terms':<48} before after")
for one in by_gain[:6] + unmoved[:3] + by_gain[-4:]:
    (right,) = judged[one.query_id]
    ranks = []
    for hits in (one.before, one.after):
        place = {hit.doc_id: rank for rank, hit in enumerate(hits, start=1)}
        ranks.append(str(place.get(right, "-")))
    terms = ", ".join(term.surface for term in one.added)
    print(f"{one.text[:60]:<62} {terms[:46]:<48} {ranks[0]:>6} {ranks[1]:>5}")

# %% [markdown]
# Every test query whose nDCG@10 changed is one bar, sorted by its gain. The mean above is the blue
# area minus the red one, divided by the number of all test queries.

# %%
moved = np.array(sorted((value for value in gain.values() if value != 0), reverse=True))
figure = Figure(figsize=(8, 3.5), layout="constrained")
ax = figure.add_subplot()
ax.bar(np.arange(len(moved)), moved, width=1.0, color=np.where(moved > 0, "tab:blue", "tab:red"))
ax.axhline(0, color="0.3", lw=0.8)
ax.set_xlabel("test queries whose ranking gained or lost, sorted")
ax.set_ylabel(f"change of {metric}")
equal = len(gain) - len(moved)
ax.set_title(f"{(moved > 0).sum()} gained, {(moved < 0).sum()} lost, {equal} as before")
ax.spines[["top", "right"]].set_visible(False)
ax.grid(axis="y", alpha=0.25)
figure

# %% [markdown]
# ## 5. Use it
#
# A query that you type, with the reason for each term: how it stood among the candidates, in how
# many of the feedback documents it occurs, how rare it is (idf), how often it occurs beside a word
# of the query (npmi), and how close their embeddings are (cosine). The line in Lucene's syntax can
# be given to another search engine.

# %%
print("\n".join(reformulator.reformulate("solve a linear system of equations", top=5).lines()))

# %% [markdown]
# The same in a terminal, from this folder, for one query or for a file of them (JSON lines with
# `_id` and `text`), of which the rankings are written in TREC's format:
#
#     kytolly reformulate runs/NAME "solve a linear system of equations"
#     kytolly reformulate runs/NAME --queries queries.jsonl --run-file reformulated.run
#
# For documents of your own, put `corpus.jsonl`, `queries.jsonl`, `qrels/train.tsv`, `qrels/dev.tsv`
# and `qrels/test.tsv` in a folder (the layout of BEIR) and train, in the repository's root, with
#
#     python train_optimized.py --config configs/msa_optimized_cpu.yaml --collection FOLDER --test
#
# `docs/query_reformulation.md` explains how it works, all settings, and the limits.
