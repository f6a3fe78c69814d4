"""Data sets and a cluster for the tests."""

import types

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import data
import graph
import steps


@pytest.fixture(scope="session")
def orders(tmp_path_factory):
    """A million orders in eight files, and PyArrow's own results: of all and of the first file."""
    paths = data.write(tmp_path_factory.mktemp("orders"), 1_000_000, 8)
    first = steps.totals(pq.read_table(paths[0]))
    own = steps.totals(pa.concat_tables([pq.read_table(path) for path in paths]))
    return types.SimpleNamespace(paths=paths, own=own, first=first)


@pytest.fixture(scope="session")
def client(tmp_path_factory):
    """A cluster of two processes with two threads each."""
    with graph.cluster(2, 2, tmp_path_factory.mktemp("dask")) as made:
        yield made
