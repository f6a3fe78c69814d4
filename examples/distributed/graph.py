"""The Dask graph: a step for each file, and a tree of merges, on worker processes of this machine."""

import contextlib
import os
import pathlib
import signal
import threading
import time

import dask
from distributed import Client, LocalCluster, as_completed

import steps


@contextlib.contextmanager
def cluster(workers, threads, folder):
    """A client of worker processes, which end with the block. Their files are in a folder."""
    # Spawned: a Go runtime does not survive a fork (docs/python.md).
    settings = {"distributed.worker.multiprocessing-method": "spawn", "temporary-directory": str(folder)}
    local = {"host": "127.0.0.1", "dashboard_address": None, "worker_dashboard_address": None, "memory_limit": 0}
    with dask.config.set(settings), LocalCluster(n_workers=workers, threads_per_worker=threads, processes=True, **local) as made, Client(made) as client:
        yield client


def summarize(client, paths, step, folder, kill=False, **arguments):
    """The orders of all files, summed up, and the process that was killed if one was to be."""
    results = steps_of(client, paths, step, folder, **arguments)
    first = next(as_completed(results))
    first.result()
    print("first results", flush=True)
    killed = kill_worker(client, first) if kill else None
    return tree(client, results).result(), killed


def steps_of(client, paths, step, folder, **arguments):
    """A future of the step for each file. Not pure: else a client that holds a result of the same graph gets that,
    even if the file has changed."""
    return client.map(traced, paths, pure=False, step=step, folder=str(folder), **arguments)


def traced(path, step, folder, **arguments):
    """A step that notes which process and thread ran it, and when."""
    begun = time.monotonic_ns()
    result = getattr(steps, step)(path, **arguments)
    with open(pathlib.Path(folder) / f"{os.getpid()}-{threading.get_ident()}", "a") as log:
        print(path, begun, time.monotonic_ns(), file=log)
    return result


def runs(folder):
    """The steps that have ended: path, process, begin, end."""
    ended = []
    for log in pathlib.Path(folder).iterdir():
        for line in log.read_text().splitlines():
            path, begin, end = line.rsplit(" ", 2)
            ended.append((path, int(log.name.partition("-")[0]), int(begin), int(end)))
    return ended


def tree(client, futures, width=4):
    """The merge of results, on the workers, so many at a time."""
    while len(futures) > 1:
        futures = [client.submit(steps.merge, futures[i : i + width]) for i in range(0, len(futures), width)]
    return futures[0]


def kill_worker(client, future):
    """Kills the worker that has the result of a future, which is lost with it. Returns its process."""
    address = client.who_has([future])[future.key][0]
    process = client.run(os.getpid, workers=[address])[address]
    os.kill(process, signal.SIGKILL)
    return process
