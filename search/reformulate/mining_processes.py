"""Mining in several processes.

Threads hardly help, because mining is Python code. Each process is started as a program of its own
rather than with `multiprocessing`: a fork of a process that runs TensorFlow may hang, and a spawned
process would run the caller's script again.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

import numpy as np

from kytolly.search.reformulate.mining import Miner, MiningResult

MANY_QUERIES = 1_000  # per process; with fewer, its start takes longer than it saves
PROGRAM = "from kytolly.search.reformulate.mining_processes import serve; serve()"


def mine_texts(
    miner: Miner,
    texts: Sequence[str],
    excluded: Sequence[int],
    vectors: Sequence[np.ndarray | None],
    workers: int | None = None,
    generated: Sequence[Mapping[str, float]] | None = None,
) -> list[MiningResult | str]:
    """The result of `Miner.mine` for each text, in order. It does not depend on `workers`.

    Args:
        miner: The index, and how candidates are mined.
        texts: [Q] queries.
        excluded: [Q] documents that must not be found; -1 for none.
        vectors: [Q] embeddings of the queries [d].
        workers: Processes, at most one per core; None: only as many as save time.
        generated: [Q] terms that a rewriter proposes, and their log-probabilities; None: there is
            no rewriter.

    Raises:
        RuntimeError: A process failed.
    """
    if workers is None:
        workers = len(texts) // MANY_QUERIES
    elif workers < 1:
        raise ValueError(f"workers is {workers}, expected at least 1, or None for one a core.")
    proposed = [None] * len(texts) if generated is None else generated
    tasks = list(zip(texts, excluded, vectors, proposed, strict=True))
    workers = min(workers, len(tasks))
    if workers > 1:  # to count cores is to read a file
        workers = min(workers, os.cpu_count() or 1)
    if workers <= 1:
        return [miner.mine(*task) for task in tasks]
    parts_of_miner = miner.index, miner.texts, miner.rules, miner.vectors, miner.term_vectors
    head = pickle.dumps(parts_of_miner)
    parts = [tasks[first::workers] for first in range(workers)]
    answers: list[list[MiningResult | str] | str] = ["not started"] * workers

    def run(place: int) -> None:
        answers[place] = _answer_of_process(head, pickle.dumps(parts[place]))

    threads = [threading.Thread(target=run, args=(place,)) for place in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    result: list[MiningResult | str] = [""] * len(tasks)
    for place, answer in enumerate(answers):
        if isinstance(answer, str):
            raise RuntimeError(
                f"process {place + 1} of {workers} that mine candidates failed: {answer}. With "
                "workers=1 mining needs no other process."
            )
        result[place::workers] = answer
    return result


def serve() -> None:
    """Program of a process: reads the miner's parts and its queries, writes their results."""
    miner = Miner(*pickle.load(sys.stdin.buffer))
    tasks = pickle.load(sys.stdin.buffer)
    pickle.dump([miner.mine(*task) for task in tasks], sys.stdout.buffer)


def _answer_of_process(head: bytes, tasks: bytes) -> list[MiningResult | str] | str:
    """Results of a process, or its error."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)}
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[name] = "1"  # the processes are the parallelism
    try:
        done = subprocess.run(
            # -P: not from the current folder, where files of strangers may lie
            [sys.executable, "-P", "-c", PROGRAM],
            input=head + tasks,
            capture_output=True,
            env=environment,
            check=False,
        )
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else f"it ended with {done.returncode}"
        return pickle.loads(done.stdout)
    except Exception as error:  # it must reach the caller, not end a thread
        return f"{type(error).__name__}: {error}"
