"""arrowdevice.share of objects of each library: another process reads the same rows."""

import ast
import os
import subprocess
import sys

import duckdb
import nanoarrow
import pandas
import polars
import pyarrow as pa
import pytest

import abi
from arrowdevice import share

READER = """
import sys
import pyarrow as pa
from arrowdevice import share
for line in sys.stdin:
    with share.open(bytes.fromhex(line)) as opened:
        batch = pa.record_batch(opened)
    print(batch.to_pylist(), flush=True)
    del batch
"""

ROWS = [
    {"n": 1, "t": "a text that is no view inline", "l": [1], "s": {"x": 1, "y": "p"}, "c": "u"},
    {"n": None, "t": None, "l": [], "s": None, "c": "v"},
    {"n": 3, "t": "", "l": None, "s": {"x": 2, "y": None}, "c": None},
    {"n": 4, "t": "short", "l": [None, 3], "s": {"x": 3, "y": ""}, "c": "u"},
]


def frame():
    return polars.DataFrame(ROWS).with_columns(polars.col("c").cast(polars.Categorical))


def batches(count):
    return [pa.RecordBatch.from_pylist(ROWS)] * count


def reader(count):
    return pa.RecordBatchReader.from_batches(batches(1)[0].schema, iter(batches(count)))


def relation(rows):
    """A relation of DuckDB, of 2048 rows a batch."""
    return duckdb.sql(f"select range n, range::varchar t, [range] l, {{'x': range}} s from range({rows})")


def of_range(rows):
    return [{"n": i, "t": str(i), "l": [i], "s": {"x": i}} for i in range(rows)]


SOURCES = {
    "polars": lambda: (frame(), ROWS),
    "polars slice": lambda: (frame()[1:3], ROWS[1:3]),
    "polars chunks": lambda: (polars.concat([frame()] * 3, rechunk=False), ROWS * 3),
    "polars empty": lambda: (frame()[:0], []),
    "polars no columns": lambda: (polars.DataFrame(), []),
    "polars null": lambda: (polars.DataFrame({"n": [None, None]}), [{"n": None}] * 2),
    "pandas": lambda: (pandas.DataFrame({"n": [1, 2], "t": ["x", None]}), [{"n": 1, "t": "x"}, {"n": 2, "t": None}]),
    "pandas empty": lambda: (pandas.DataFrame({"n": [1], "t": ["x"]})[:0], []),
    "duckdb": lambda: (relation(5), of_range(5)),
    "duckdb batches": lambda: (relation(5000), of_range(5000)),
    "duckdb empty": lambda: (relation(0), []),
    "nanoarrow array": lambda: (nanoarrow.Array(batches(1)[0]), ROWS),
    "nanoarrow stream": lambda: (nanoarrow.ArrayStream(reader(3)), ROWS * 3),
    "nanoarrow empty stream": lambda: (nanoarrow.ArrayStream(reader(0)), []),
    "pyarrow reader": lambda: (reader(4), ROWS * 4),
    "pyarrow table": lambda: (pa.Table.from_batches(batches(3)), ROWS * 3),
    "pyarrow empty table": lambda: (batches(1)[0].schema.empty_table(), []),
}


@pytest.fixture(scope="module")
def read():
    """Returns the rows that another process reads of a ticket."""
    environment = {**os.environ, "PYTHONPATH": abi.PACKAGE}
    command = [sys.executable, "-c", READER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:

        def read(ticket):
            process.stdin.write(ticket.hex() + "\n")
            process.stdin.flush()
            return ast.literal_eval(process.stdout.readline())

        try:
            yield read
            process.stdin.close()
            assert process.wait(20) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("source", SOURCES)
def test_sources(read, source):
    data, want = SOURCES[source]()
    with share.share(data) as shared:
        assert read(shared.ticket) == want
        shared.wait(20)
