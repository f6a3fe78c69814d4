"""Errors in streams between Go and the peers: they come in their place, with their text."""

import re

import duckdb
import nanoarrow
import polars
import pyarrow as pa
import pytest

import peers
from golib import GoBatch, GoError
from gostream import GoStream
from test_plain_streams import ROWS, each_peer
from test_stream_errors import FAILURES, failing, sources_of

# The class of the exception. pandas raises PyArrow's, by its number. DuckDB raises its
# own if a query fails before its first rows are there, and else its stream fails, which
# PyArrow reads.
RAISES = {
    "polars": polars.exceptions.ComputeError,
    "duckdb": (duckdb.InvalidInputException, OSError),
    "pandas": (OSError, pa.ArrowException),
    "nanoarrow": nanoarrow._utils.NanoarrowException,
}


@each_peer
@pytest.mark.parametrize("failure", FAILURES)
def test_what_fails_in_go_is_an_exception_of_the_peer(peer, failure):
    number, _, text = FAILURES[failure]
    for how in sources_of(failure):
        for after in (0, 2):
            with GoBatch.make("utf8", "nulls") as item, failing(how, failure, after, item) as go:
                with pytest.raises(RAISES[peer.name], match=re.escape(text)) as raised:
                    peers.table(peer.take(peers.Hidden(go)))
            if peer is peers.NANOARROW:
                assert f"failed ({number})" in str(raised.value)


def test_what_fails_in_go_ends_a_scan_of_polars():
    with GoBatch.make("utf8", "nulls") as item, failing("iterator", "error", 2, item) as go:
        with pytest.raises(polars.exceptions.ComputeError, match="disk on fire"):
            polars.scan_arrow_c_stream(peers.Hidden(go)).collect()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_what_fails_in_duckdb_is_an_error_in_go(prefetch):
    """A query fails while Go reads it, which may be before the first batch: DuckDB is ahead. And
    again when it is asked again."""
    with duckdb.connect() as connection:
        query = connection.sql("select case when i >= 700000 then error('no such row') else i end i from range(1000000) t(i)")
        with GoStream.from_arrow(query, prefetch=prefetch) as go:
            for _ in range(2):
                with pytest.raises(GoError, match=r"ArrowArrayStream\.get_next: .*\(errno 5\): Invalid Input Error: no such row"):
                    while item := go.next():
                        item.release()


def failing_batches(after):
    def batches():
        yield from ROWS.to_batches(7)[:after]
        raise OSError("disk gone")

    return pa.RecordBatchReader.from_batches(ROWS.schema, batches())


@pytest.mark.parametrize("after", [0, 2])
def test_an_exception_reaches_go_through_nanoarrow(after):
    with GoStream.from_arrow(nanoarrow.ArrayStream(peers.Hidden(failing_batches(after)))) as go:
        for _ in range(after):
            go.next().release()
        with pytest.raises(GoError, match=r"errno 5.*disk gone"):
            go.next()


@each_peer
@pytest.mark.parametrize("after", [0, 2])
def test_an_exception_of_python_passes_through_go(peer, after):
    """From a generator, through PyArrow and Go, to the peer."""
    with GoStream.from_arrow(failing_batches(after)) as go:
        with pytest.raises(RAISES[peer.name], match="disk gone"):
            peers.table(peer.take(peers.Hidden(go)))


@each_peer
def test_an_exception_while_a_stream_is_made(peer):
    class Failing:
        def __arrow_c_stream__(self, requested_schema=None):
            raise ValueError("no stream today")

    with pytest.raises(Exception, match="no stream today"):
        peer.take(Failing())
    with pytest.raises(ValueError, match="no stream today"):
        GoStream.from_arrow(Failing())
