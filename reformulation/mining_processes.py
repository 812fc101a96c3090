"""Mining in several processes.

Threads hardly help, because mining is Python code. The processes are started as programs of their
own rather than by `multiprocessing`: a fork of a process that runs TensorFlow may hang, and a
spawned one would run the caller's script again.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence

from kytolly.reformulation.mining import Mined, Miner

MANY_QUERIES = 1_000  # per process; below, starting it takes longer than it saves
PROGRAM = "from kytolly.reformulation.mining_processes import serve; serve()"


def mine_texts(
    miner: Miner, texts: Sequence[str], excluded: Sequence[int], workers: int | None = None
) -> list[Mined | str]:
    """What `Miner.mine` returns for each text, in their order, whatever the number of workers.

    Args:
        miner: The index and how to mine.
        texts: [Q] queries.
        excluded: [Q] documents that must not be found, -1 for none.
        workers: Processes; None: one per core, but no more than pay for their start.

    Raises:
        RuntimeError: A process failed.
    """
    if workers is None:
        workers = min(os.cpu_count() or 1, len(texts) // MANY_QUERIES)
    elif workers < 1:
        raise ValueError(f"workers is {workers}, expected at least 1, or None for one a core.")
    tasks = list(zip(texts, excluded, strict=True))
    workers = min(workers, len(tasks))
    if workers <= 1:
        return [miner.mine(text, without) for text, without in tasks]
    head = pickle.dumps((miner.index, miner.texts, miner.settings))
    parts = [tasks[first::workers] for first in range(workers)]
    answers: list[list[Mined | str] | str] = ["not started"] * workers

    def run(place: int) -> None:
        answers[place] = _answer_of_process(head, pickle.dumps(parts[place]))

    threads = [threading.Thread(target=run, args=(place,)) for place in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    result: list[Mined | str] = [""] * len(tasks)
    for place, answer in enumerate(answers):
        if isinstance(answer, str):
            raise RuntimeError(
                f"process {place + 1} of {workers} that mine candidates failed: {answer}. With "
                "workers=1 mining needs no other process."
            )
        result[place::workers] = answer
    return result


def serve() -> None:
    """What a process does: reads the miner's parts and its queries, writes what was mined."""
    index, texts, settings = pickle.load(sys.stdin.buffer)
    miner = Miner(index, texts, settings)
    tasks = pickle.load(sys.stdin.buffer)
    pickle.dump([miner.mine(text, without) for text, without in tasks], sys.stdout.buffer)


def _answer_of_process(head: bytes, tasks: bytes) -> list[Mined | str] | str:
    """What a process mined, or its error."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)}
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[name] = "1"  # the processes are the parallelism
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
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
