"""Sums up orders by country and day: a Go extension is the step of a Dask graph over Parquet files."""

import argparse
import collections
import multiprocessing
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

import pyarrow as pa
import pyarrow.parquet as pq

import data
import graph
import steps


def options():
    parser = argparse.ArgumentParser(prog="run.sh", description=__doc__)
    parser.add_argument("--rows", type=count, default=10_000_000)
    parser.add_argument("--files", type=count, default=20, help="partitions of the data set")
    parser.add_argument("--workers", type=count, default=2, help="processes")
    parser.add_argument("--threads", type=count, default=2, help="threads of each process")
    parser.add_argument("--step", choices=["go", "pyarrow", "python"], default="go")
    parser.add_argument("--device", action="store_true", help="the step in Go copies batches to a GPU and back")
    parser.add_argument("--kill-worker", action="store_true", help="kill a worker that has a result")
    parser.add_argument("--compare", action="store_true", help="measure the steps in one thread, without Dask")
    chosen = parser.parse_args()
    if chosen.device and chosen.step != "go":
        parser.error("--device is for the step in Go")
    return chosen


def count(text):
    number = int(text)
    if number < 1:
        raise ValueError(f"{text} is less than 1")
    return number


def end_on_signals(folder):
    """A signal ends the workers and this process, and removes the folder. An exception instead would be raised in the
    middle of Dask's own work, which may then hang."""

    def end(number, _):
        workers = multiprocessing.active_children()
        for worker in workers:  # stopped, they write nothing more, and are not replaced as dead ones are
            os.kill(worker.pid, signal.SIGSTOP)
        for _ in range(1000):  # this process's own threads of Dask may write meanwhile, and a worker until it has stopped
            shutil.rmtree(folder, ignore_errors=True)
            if not os.path.exists(folder):
                break
        for worker in workers:
            worker.kill()
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def main(chosen):
    with tempfile.TemporaryDirectory(prefix="orders-") as folder:
        end_on_signals(folder)
        files, log, scratch = (pathlib.Path(folder, name) for name in ("data", "runs", "dask"))
        for made in (files, log, scratch):
            made.mkdir()
        paths, seconds = timed(lambda: data.write(files, chosen.rows, chosen.files))
        size = sum(path.stat().st_size for path in files.iterdir())
        print(f"{chosen.rows:,} orders in {len(paths)} files, {size / 1e6:.0f} MB, written in {seconds:.1f} s", flush=True)
        return compare(paths[0]) if chosen.compare else run(chosen, paths, log, scratch)


def run(chosen, paths, log, scratch):
    """Runs the graph, and compares its result with that of PyArrow alone."""
    with graph.cluster(chosen.workers, chosen.threads, scratch) as client:
        gpu = {"gpu": 0} if chosen.device else {}
        (table, killed), seconds = timed(lambda: graph.summarize(client, paths, chosen.step, log, chosen.kill_worker, **gpu))
        alive = client.run(os.getpid).values()
    ended = graph.runs(log)
    print(f"{chosen.step} in {chosen.workers} processes of {chosen.threads} threads: {seconds:.2f} s, {chosen.rows / seconds / 1e6:.2f} million orders per second")
    print(f"steps that ended: {len(ended)}")
    if killed:
        again = sum(count > 1 for count in collections.Counter(path for path, *_ in ended).values())
        print(f"killed: process {killed}, {'still there' if killed in alive else 'gone'}; steps that ended more than once: {again}")
    print(rows(table))
    own, seconds = timed(lambda: steps.totals(pa.concat_tables([pq.read_table(path) for path in paths])))
    print(f"PyArrow alone, all orders as one table: {seconds:.2f} s, {'the same result' if table.equals(own) else 'ANOTHER RESULT'}")
    return 0 if table.equals(own) else 1


def rows(table):
    """The totals of each country, as text."""
    totals = table.group_by("country").aggregate([(name, "sum") for name in steps.SUMS]).sort_by("country")
    lines = [["country", *steps.SUMS], *zip(*(column.to_pylist() for column in totals.columns))]
    return "\n".join(f"{line[0]:8}" + "".join(f"{value:>16,}" if isinstance(value, int) else f"{value:>16}" for value in line[1:]) for line in lines)


def compare(path):
    """Measures each step in one thread, on batches in memory and on a file: the best of five turns."""
    pa.set_cpu_count(1)
    batches = list(steps.stream(path))
    memory = {}
    for name, step in {"go": steps.summarize, "pyarrow": steps.summarize_pyarrow, "python": steps.summarize_python}.items():
        turns = [timed(lambda: step(pa.RecordBatchReader.from_batches(batches[0].schema, batches)))[1] for _ in range(5)]
        with_file = [timed(lambda: getattr(steps, name)(path))[1] for _ in range(5)]
        memory[name] = min(turns), min(with_file)
    count = sum(batch.num_rows for batch in batches)
    print(f"{count:,} orders, one thread    in memory          with Parquet")
    for name, (turn, with_file) in memory.items():
        ratios = turn / memory["go"][0], with_file / memory["go"][1]
        print(f"{name:8} {turn * 1e9 / count:24.0f} ns {ratios[0]:5.1f}x {with_file * 1e9 / count:8.0f} ns {ratios[1]:5.1f}x")
    return 0


def timed(f):
    begun = time.perf_counter()
    return f(), time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main(options()))
