"""Streams from Go into PyArrow, DuckDB and polars, from end to end, turn by turn with the same streams from PyArrow.

    measure.py LIBRARY ROUNDS

The library is bench/endtoend, built with -buildmode=c-shared. Prints JSON: the rows of bench/report.go."""

import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import arrowdevice
import duckdb
import polars
import pyarrow as pa

# Columns, rows of a batch, batches of a stream: many small ones, wide ones, and a few large ones.
CASES = [(10, 1000, 300), (100, 1000, 100), (10, 1_000_000, 4)]


class FromPyArrow:
    """A stream of the same batch again and again, by Arrow C++."""

    def __init__(self, columns, rows, count):
        one = pa.record_batch({f"c{c}": pa.array(range(c, c + rows), pa.int64()) for c in range(columns)})
        self.table = pa.Table.from_batches([one] * count)

    def stream(self):
        return Capsule(self.table.to_reader())


class Capsule:
    """An object that has a stream and nothing else: DuckDB and polars treat those of PyArrow in ways of their own."""

    def __init__(self, reader):
        self.reader = reader

    def __arrow_c_stream__(self, requested_schema=None):
        return self.reader.__arrow_c_stream__(requested_schema)


class FromGo:
    def __init__(self, extension, *case):
        self.extension, self.case = extension, case

    def stream(self):
        return Capsule(self.extension.batches(*self.case))


def into_pyarrow(stream):
    """Reads batch by batch: each is imported, and released."""
    return sum(batch.num_rows for batch in pa.RecordBatchReader.from_stream(stream))


def into_duckdb(stream):
    """Sums a column: DuckDB asks for the batches while it reads."""
    return duckdb.sql("SELECT count(c0), sum(c0) FROM stream").fetchall()[0][0]


def into_polars(stream):
    """Makes a data frame of all batches."""
    return polars.DataFrame(stream).height


CONSUMERS = {"PyArrow": into_pyarrow, "DuckDB": into_duckdb, "polars": into_polars}


def turn(consume, producer, case):
    stream = producer.stream()
    start, cpu = time.perf_counter_ns(), time.process_time_ns()
    rows = consume(stream)
    took, cpu = time.perf_counter_ns() - start, time.process_time_ns() - cpu
    if rows != case[1] * case[2]:
        raise RuntimeError(f"{rows} rows came of {case}")
    return took / case[2], cpu / case[2]


def measure(name, case, ours, peer, rounds):
    """Nanoseconds of a batch, by medians."""
    consume = CONSUMERS[name]
    turns = [(turn(consume, ours, case), turn(consume, peer, case)) for _ in range(rounds + 1)][1:]
    median = [[statistics.median(t[side][k] for t in turns) for k in range(2)] for side in range(2)]
    return {
        "operation": f"stream into {name}",
        "shape": f"int64, {case[1]:,} rows, {case[2]} batches",
        "columns": case[0],
        "ns": median[0][0],
        "cpu_ns": median[0][1],
        "allocs": 0,
        "peer": "PyArrow",
        "peer_ns": median[1][0],
        "peer_cpu_ns": median[1][1],
        "ratio": statistics.median(theirs[0] / mine[0] for mine, theirs in turns),
    }


def main(library, rounds):
    extension = arrowdevice.load(os.path.abspath(library))
    rows = []
    for case in CASES:
        peer = FromPyArrow(*case)
        rows += [measure(name, case, FromGo(extension, *case), peer, rounds) for name in CONSUMERS]
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
