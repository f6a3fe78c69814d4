"""Plain arrays, __arrow_c_array__, and streams of arrays that are no structs, between Go and
the peers; and where the memory is. PyArrow's are in test_types.py, as protocol "plain"."""

import ctypes

import nanoarrow
import pandas
import polars
import pyarrow as pa
import pytest

import abi
import arrays
import cpp
import peers
import transfer
from golib import GoArray, GoBatch, GoError
from gostream import GoStream, released
from test_plain_stream_types import addresses
from test_plain_streams import ROWS, each_peer
from test_types import VARIANTS, assert_shared, go_items

BATCH = ROWS.to_batches()[0]


@pytest.mark.parametrize("name", [name for name in arrays.CASES if name not in peers.VIEWS])
def test_every_type_to_nanoarrow_and_back(name):
    with go_items("array", name) as items:
        for variant, item in zip(VARIANTS, items):
            with GoArray.from_plain(nanoarrow.c_array(item.plain()), full_validation=True) as back:
                assert back.difference(item) == "", variant
                assert_shared(back, item, name, variant)


TAKES_ARRAYS = {
    "polars": lambda batch: polars.DataFrame(batch).rows(named=True),
    "duckdb": lambda batch: peers.relation(batch).to_arrow_table().to_pylist(),
    "pandas": lambda batch: peers.table(pandas.DataFrame.from_arrow(batch)).to_pylist(),
    "nanoarrow": lambda batch: nanoarrow.Array(batch).to_pylist(),
}


@pytest.mark.parametrize("peer", TAKES_ARRAYS)
def test_a_batch_without_a_stream_is_taken(peer):
    with GoBatch.from_plain(BATCH) as whole, whole.slice(2, 30) as part:
        assert TAKES_ARRAYS[peer](part.plain()) == BATCH.slice(2, 28).to_pylist()


CHUNKS = [[1, 2], [], [3, 4, 5]]
TAKES_CHUNKS = {
    "polars": lambda go: polars.Series("a", go).to_list(),
    "pandas": lambda go: pandas.Series.from_arrow(go).to_list(),
    "nanoarrow": lambda go: nanoarrow.ArrayStream(go).read_all().to_pylist(),
    "duckdb": lambda go: [row for row, in peers.relation(go).fetchall()],
    "pyarrow": lambda go: pa.chunked_array(go).to_pylist(),
}


@pytest.mark.parametrize("peer", TAKES_CHUNKS)
def test_chunks_of_go_arrive(peer):
    with released(GoArray.from_plain(pa.array(chunk, pa.int32())) for chunk in CHUNKS) as items, GoStream.of(items) as go:
        assert TAKES_CHUNKS[peer](peers.Hidden(go)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "made",
    [
        lambda: polars.Series("a", [1, None, 3]),
        lambda: pa.chunked_array([[1], [None, 3]]),
        lambda: nanoarrow.Array([1, None, 3], nanoarrow.int64()),
        lambda: pandas.Series([1, None, 3], dtype="Int64"),
    ],
    ids=["polars", "pyarrow", "nanoarrow", "pandas"],
)
def test_chunks_of_a_peer_arrive(made):
    with GoStream.from_arrow(made(), of_arrays=True, full_validation=True) as go, released(go) as items:
        assert [value for item in items for value in item.values()] == [1, None, 3]
    with pytest.raises(GoError, match="want .+s"):
        GoStream.from_arrow(made())


def test_slices_of_structs_are_batches():
    rows = pa.array([{"n": 1, "s": "a"}, {"n": None, "s": "b"}, {"n": 3, "s": None}, {"n": 4, "s": "d"}])
    for start, length in [(1, 2), (3, 1), (4, 0)]:
        part = rows.slice(start, length)
        with GoBatch.from_plain(part, full_validation=True) as item:
            assert pa.record_batch(item).to_pylist() == part.to_pylist()
        with GoStream.from_arrow(pa.chunked_array([part, rows])) as go:
            assert pa.table(go).to_pylist() == part.to_pylist() + rows.to_pylist()


def test_structs_that_are_no_batches_are_taken_as_arrays():
    """A null of a whole row has no place in a record batch, as in Arrow C++."""
    rows = pa.array([{"n": 1}, None, {"n": 3}, {"n": 4}])
    for chunk in (rows.slice(1, 2), rows):
        chunked = pa.chunked_array([chunk])
        with GoStream.from_arrow(chunked) as go, pytest.raises(GoError, match="for a record batch"):
            go.next()
        with GoStream.from_arrow(chunked, of_arrays=True) as go, released(go) as items:
            assert [value for item in items for value in item.values()] == chunk.to_pylist()


# Where the memory is.


def shared(peer, column):
    """Addresses of Go's column, and of the peer's view of it."""
    batch = pa.record_batch({"a": column})
    with GoBatch.from_plain(batch) as item, GoStream.of([item]) as go:
        held = peers.table(peer.take(peers.Hidden(go)))
        return addresses(item.buffers()), addresses(transfer.pyarrow_buffers(held.to_batches()[0]))


NUMBERS = pa.array([None if i % 9 == 0 else i for i in range(1000)], pa.int64())
TEXTS = pa.array([f"text {i} that is no view inline" for i in range(1000)], pa.string_view())
LISTS = pa.array([[i] * (i % 4) for i in range(1000)], pa.large_list(pa.int64()))


@pytest.mark.parametrize("column", [NUMBERS, LISTS, TEXTS], ids=["int64", "large_list", "utf8_view"])
def test_polars_has_the_memory_of_go(column):
    ours, theirs = shared(peers.POLARS, column)
    assert ours and ours <= theirs


def test_polars_copies_offsets_of_32_bits():
    ours, theirs = shared(peers.POLARS, LISTS.cast(pa.list_(pa.int64())))
    assert len(ours) == 2 and len(ours & theirs) == 1


@pytest.mark.parametrize("column", [NUMBERS, LISTS, ROWS["s"].chunk(0)], ids=["int64", "large_list", "struct"])
def test_nanoarrow_has_the_memory_of_go(column):
    ours, theirs = shared(peers.NANOARROW, column)
    assert ours and ours <= theirs


@pytest.mark.parametrize("peer", [peers.DUCKDB, peers.PANDAS], ids=str)
def test_duckdb_and_pandas_copy_numbers(peer):
    ours, theirs = shared(peer, NUMBERS)
    assert ours and not ours & theirs


@each_peer
def test_memory_of_another_device_is_refused(peer):
    reader = pa.RecordBatchReader.from_batches(BATCH.schema, [BATCH])
    with cpp.exported(reader, device_type=abi.EXT_DEV) as stream:
        with GoStream.take(ctypes.addressof(stream)) as go, pytest.raises(Exception, match="not supported"):
            peers.table(peer.take(peers.Hidden(go)))
