"""Streams between Go and the peers: their batches, their ends, and their threads. Errors
are in test_plain_stream_errors.py, every type in test_plain_stream_types.py."""

import concurrent.futures
import gc

import duckdb
import nanoarrow
import pandas
import polars
import pyarrow as pa
import pytest

import golib
import peers
import transfer
from gostream import GoStream, released

each_peer = pytest.mark.parametrize("peer", peers.PEERS, ids=str)

ROWS = pa.table(
    {
        "n": pa.array([None if i % 7 == 3 else i for i in range(60)], pa.int64()),
        "t": [f"row {i}, a text that is no view inline" if i % 5 else None for i in range(60)],
        "s": pa.array([{"x": i, "y": f"{i}"} for i in range(60)]),
        "l": [list(range(i % 4)) for i in range(60)],
    }
)


def go_batches(size):
    return released(transfer.to_go(batch, "plain") for batch in ROWS.to_batches(size))


def rows_of(items):
    """All rows that Go has read."""
    with released(items) as batches:
        return [row for batch in batches for row in batch.values()]


# Batches.


@each_peer
@pytest.mark.parametrize("size", [1, 7, 60])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_there_and_back(peer, size, prefetch):
    """From Go to a peer, back to Go, to the peer again."""
    with go_batches(size) as items, GoStream.of(items) as go:
        with GoStream.from_arrow(peer.take(peers.Hidden(go)), full_validation=True, prefetch=prefetch) as back:
            assert peers.table(peer.take(peers.Hidden(back))).to_pylist() == ROWS.to_pylist()


@each_peer
def test_a_thousand_batches(peer):
    """Slices, of whose structs arrow-go's cdata exports other rows: docs/upstream.md, 1."""
    with go_batches(60) as [item]:
        with released(item.slice(i % 50, i % 50 + i % 10) for i in range(1000)) as parts, GoStream.of(parts) as go:
            got = peers.table(peer.take(peers.Hidden(go)))
    want = ROWS.to_pylist()
    assert got.to_pylist() == [row for i in range(1000) for row in want[i % 50 : i % 50 + i % 10]]


@each_peer
def test_no_batches_and_batches_without_rows(peer):
    with go_batches(60) as [item], item.slice(3, 3) as none:
        for batches in ([], [none], [none, none], [none, item, none]):
            with GoStream.of(batches, like=item) as go:
                got = peers.table(peer.take(peers.Hidden(go)))
            assert got.to_pylist() == ROWS.to_pylist() * (item in batches)
            assert got.schema.names == ROWS.schema.names


@each_peer
def test_a_peer_without_rows(peer):
    native = peer.take(peers.Batches(schema=pa.schema([("n", pa.int64()), ("t", pa.string())])))
    with GoStream.from_arrow(native, full_validation=True) as go:
        assert [field["name"] for field in go.describe()["fields"]] == ["n", "t"]
        assert rows_of(go) == []


# Ends.


@each_peer
@pytest.mark.parametrize("on_other_thread", [False, True])
@pytest.mark.parametrize("taken", [0, 1, 3])
def test_go_releases_a_stream_of_a_peer_at_any_time(peer, taken, on_other_thread):
    native = peer.take(peers.Batches(*ROWS.to_batches(7)))
    with GoStream.from_arrow(native) as go:
        with released(filter(None, [go.next() for _ in range(taken)])) as items:
            go.release(on_other_thread)
            del native
            gc.collect()
            got = [row for item in items for row in item.values()]
    assert got == ROWS.to_pylist()[: len(got)]


def unread_polars(go):
    return polars.scan_arrow_c_stream(go)


def partly_read_polars(go):
    assert polars.scan_arrow_c_stream(go).head(1).collect().height == 1


def unread_duckdb(go):
    return peers.relation(go)


def partly_read_duckdb(go):
    assert peers.relation(go).limit(1).fetchall()[0][0] == 0


def closed_duckdb(go):
    with duckdb.connect() as connection:
        reader = connection.sql("from go").to_arrow_reader(7)
        reader.read_next_batch()
    return reader


def unread_nanoarrow(go):
    return nanoarrow.ArrayStream(go)


def closed_nanoarrow(go):
    with nanoarrow.ArrayStream(go) as stream:
        stream.read_next()


@pytest.mark.parametrize("how", ["iterator", "function"])
@pytest.mark.parametrize(
    "use",
    [unread_polars, partly_read_polars, unread_duckdb, partly_read_duckdb, closed_duckdb, unread_nanoarrow, closed_nanoarrow],
)
def test_a_peer_ends_a_stream_of_go_early(use, how):
    with go_batches(7) as items, GoStream.of(items, how=how) as go:
        left = use(peers.Hidden(go))
        go.release()
        del left
        gc.collect()
        assert golib.stats()["exported_streams"] == 0
        assert golib.stats()["sources"] == 0


@each_peer
def test_batches_of_go_outlive_their_stream(peer):
    with go_batches(7) as items, GoStream.of(items) as go:
        native = peer.take(peers.Hidden(go))
        if peer is peers.DUCKDB:
            native = native.to_arrow_table()
    golib.ext.free_memory()
    assert pa.table(native).to_pylist() == ROWS.to_pylist()


@each_peer
def test_batches_of_a_peer_outlive_it(peer):
    with GoStream.from_arrow(peer.take(peers.Batches(*ROWS.to_batches(7)))) as go:
        items = list(go)
    gc.collect()
    assert rows_of(items) == ROWS.to_pylist()


# How often a stream is asked for.


class Restarting:
    """A new stream of Go's each time."""

    def __init__(self, items):
        self._items, self.asked = items, 0

    def __arrow_c_stream__(self, requested_schema=None):
        self.asked += 1
        with GoStream.of(self._items) as go:
            return go.__arrow_c_stream__()


def test_duckdb_asks_once_for_the_schema_and_once_more_for_each_reading():
    with go_batches(7) as items:
        again = Restarting(items)
        relation = peers.relation(again)
        assert again.asked == 1
        for _ in range(2):
            asked = again.asked
            assert relation.count("*").fetchall() == [(60,)]
            assert again.asked > asked
        joined = duckdb.connect().sql("select count(*) from again x, again y where x.n = y.n")
        assert joined.fetchall() == [(ROWS["n"].drop_null().length(),)]


def test_a_stream_that_is_read_already_is_empty_to_duckdb():
    """A GoStream is one stream, however often it is asked for: no error, and no rows."""
    with go_batches(7) as items, GoStream.of(items) as go:
        relation = peers.relation(peers.Hidden(go))
        assert [len(relation.fetchall()) for _ in range(2)] == [60, 0]


def test_a_scan_of_polars_is_read_once():
    """polars asks an object only once for a stream: the second collect is empty."""
    with go_batches(7) as items:
        again = Restarting(items)
        scan = polars.scan_arrow_c_stream(again)
        assert [scan.collect().height for _ in range(2)] == [60, 0]
        assert again.asked == 1


# Threads.


def to_and_fro(peer):
    with go_batches(7) as items, GoStream.of(items) as go:
        with GoStream.from_arrow(peer.take(peers.Hidden(go)), prefetch=1) as back:
            return rows_of(back) == ROWS.to_pylist()


def test_all_peers_at_once():
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(to_and_fro, peers.PEERS * 6))


@pytest.mark.parametrize(
    "peer, prefetch",
    # The lock is theirs meanwhile, or their caller's: test_defects.py.
    [(peers.POLARS, 3), (peers.DUCKDB, 0), (peers.DUCKDB, 3), (peers.PANDAS, 3), (peers.NANOARROW, 0)],
    ids=str,
)
def test_peers_reach_python_through_go(peer, prefetch):
    """A peer asks Go, on any thread, Go asks PyArrow, with a prefetch on a thread of its own,
    and that a generator in Python, which wants Python's lock."""
    batches = (batch for batch in ROWS.to_batches(1) * 20)
    source = pa.RecordBatchReader.from_batches(ROWS.schema, batches)
    with GoStream.from_arrow(source, prefetch=prefetch) as go:
        assert peers.table(peer.take(peers.Hidden(go))).num_rows == 1200


def test_threads_of_polars_reach_python_through_go():
    source = pa.RecordBatchReader.from_batches(ROWS.schema, (batch for batch in ROWS.to_batches(1) * 20))
    with GoStream.from_arrow(source) as go:
        assert polars.scan_arrow_c_stream(peers.Hidden(go)).collect().height == 1200


def test_duckdb_reads_large_batches_in_parallel():
    numbers = pa.record_batch({"i": pa.array(range(100_000), pa.int64())})
    with transfer.to_go(numbers, "plain") as item, released(item.slice(i, 100_000) for i in range(40)) as items:
        with GoStream.of(items) as go:
            total = duckdb.connect().sql("select sum(i), count(*) from go").fetchall()
    assert total == [(sum(sum(range(i, 100_000)) for i in range(40)), sum(100_000 - i for i in range(40)))]


# Go reads from a running query of DuckDB.


def numbers_of(connection, count=1_000_000):
    return connection.sql(f"select i from range({count}) t(i)")


def test_a_connection_of_duckdb_waits_for_go():
    with duckdb.connect() as connection, GoStream.from_arrow(numbers_of(connection)) as go:
        go.next().release()
        with pytest.raises(duckdb.Error, match="connection has an open result"):
            connection.execute("select 1")
        assert connection.cursor().execute("select 1").fetchall() == [(1,)]
        go.release()
        assert connection.execute("select 1").fetchall() == [(1,)]


def test_a_connection_of_duckdb_is_free_at_the_end_of_its_stream():
    with duckdb.connect() as connection, GoStream.from_arrow(numbers_of(connection)) as go:
        for item in go:
            item.release()
        assert connection.execute("select 1").fetchall() == [(1,)]


def test_go_reads_on_when_the_connection_of_duckdb_is_closed():
    connection = duckdb.connect()
    with GoStream.from_arrow(numbers_of(connection)) as go:
        connection.close()
        del connection
        gc.collect()
        with released(go) as items:
            assert sum(item.describe()["length"] for item in items) == 1_000_000


# The schema and metadata of a stream.


METADATA = pa.schema([pa.field("n", pa.int64(), nullable=False, metadata={"unit": "m"})], {"k": "v"})
KEPT = {
    "polars": (None, None, True),
    "duckdb": (None, None, True),
    "pandas": (None, None, True),  # but for a text of pandas' own
    "nanoarrow": ({b"k": b"v"}, {b"unit": b"m"}, False),
}


@each_peer
def test_what_a_peer_keeps_of_the_metadata(peer):
    with GoStream.from_arrow(peers.Batches(pa.record_batch([[1]], METADATA))) as go:
        schema = peers.table(peer.take(peers.Hidden(go))).schema
    metadata = {key: text for key, text in (schema.metadata or {}).items() if key != b"pandas"} or None
    assert (metadata, schema.field("n").metadata, schema.field("n").nullable) == KEPT[peer.name]


def test_pandas_makes_floats_of_integers_with_nulls():
    """So large ones change. They do for PyArrow's streams, too."""
    numbers = pa.record_batch({"n": pa.array([2**53 + 1, None], pa.int64())})
    with GoStream.from_arrow(peers.Batches(numbers)) as go:
        frame = pandas.DataFrame.from_arrow(peers.Hidden(go))
    assert frame["n"][0] == 2**53
    assert pandas.DataFrame.from_arrow(peers.Batches(numbers))["n"][0] == 2**53
