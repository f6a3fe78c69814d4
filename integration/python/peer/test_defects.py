"""Defects of the peers, each without Go where it can be: PyArrow is the producer. A new
version of a peer that has mended one turns a test red; docs/interop.md lists them."""

import signal
import subprocess
import sys
import textwrap

import pandas
import polars
import pyarrow as pa
import pytest

import arrays
import peers
from golib import GoBatch
from gostream import GoStream


_HEAD = """
    import faulthandler, nanoarrow, pandas, polars, pyarrow as pa
    import peers
"""


def ended(program, seconds=60, head=_HEAD):
    """How a process of its own ends that runs a program: its code, and its standard error."""
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(program)],
        capture_output=True, text=True, timeout=seconds,
    )  # fmt: skip
    return run.returncode, run.stderr


def died(program):
    """Reports whether the process was ended by a signal."""
    return ended(program)[0] < 0


def test_a_process_lives_without_a_defect():
    """So the tests below test something."""
    assert not died("pa.table(polars.DataFrame(pa.table({'a': [1]})))")


@pytest.mark.parametrize("name", ["decimal32", "decimal64"])
def test_polars_aborts_when_it_exports_small_decimals(name):
    """Which it has taken."""
    assert died(f"""
        import arrays
        frame = polars.DataFrame(peers.Batches(arrays.CASES["{name}"].batch("nulls")))
        pa.table(peers.Hidden(frame))
    """)


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="seen with Python 3.11")
@pytest.mark.parametrize("daemon", [True, False])
def test_polars_aborts_at_exit_under_a_daemon_thread(daemon):
    """Python ends the thread when it comes back from the call, which unwinds the frames of polars. The object
    in sys keeps the exit busy until then."""
    program = f"""
        import sys, threading, time

        class Late:
            def __del__(self, sleep=time.sleep):
                sleep(2)

        sys.late = Late()
        called = threading.Event()

        def function(value):
            called.set()
            time.sleep(0.01)
            return value

        def work():  # until after the end of the daemon's process
            polars.Series(range({1000 if daemon else 10})).map_elements(function, return_dtype=polars.Int64)

        threading.Thread(target=work, daemon={daemon}).start()
        called.wait()
    """
    code, error = ended(program, head="import polars\n")
    if daemon:
        assert code == -signal.SIGABRT and "FATAL: exception not rethrown" in error
    else:
        assert (code, error) == (0, "")


@pytest.mark.parametrize("view", ["string_view", "binary_view"])
def test_nanoarrow_dies_of_views(view):
    assert died(f"""
        batch = pa.record_batch({{"a": pa.array(["a text that is longer than twelve"], pa.{view}())}})
        pa.table(peers.Hidden(nanoarrow.ArrayStream(peers.Batches(batch)).read_all()))
    """)


def test_pandas_aborts_with_a_list_view_without_batches():
    assert died("""
        schema = pa.schema([("a", pa.list_view(pa.int32()))])
        pandas.DataFrame.from_arrow(peers.Batches(schema=schema))
    """)


@pytest.mark.parametrize("read", ["polars.scan_arrow_c_stream(source).collect()", "nanoarrow.ArrayStream(source).read_all()"])
def test_peers_that_hold_the_lock_of_python_wait_for_a_prefetch_for_ever(read):
    """They keep it while they ask Go, whose prefetch wants it for a generator on another thread."""
    code, error = ended(f"""
        from gostream import GoStream
        batch = pa.record_batch({{"a": [1]}})
        reader = pa.RecordBatchReader.from_batches(batch.schema, (batch for _ in range(1000)))
        go = GoStream.from_arrow(reader, prefetch=1)
        source = peers.Hidden(go)
        faulthandler.dump_traceback_later(3, exit=True)
        {read}
    """)
    assert code == 1
    assert "Timeout" in error


def test_polars_refuses_slices_of_fixed_size_lists_with_nulls():
    """It compares the bitmap of the slice with the values of the whole."""
    column = pa.array([[1, 2], [3, 4], None, [5, 6]], pa.list_(pa.int16(), 2))
    assert polars.DataFrame(peers.Batches(pa.record_batch({"a": column}))).height == 4
    with pytest.raises(polars.exceptions.ComputeError, match="validity mask length"):
        polars.DataFrame(peers.Batches(pa.record_batch({"a": column.slice(1)})))


def test_duckdb_takes_only_unions_that_number_their_types_from_zero():
    types, children = pa.array([5, 7], pa.int8()), [pa.array([1, 2]), pa.array(["x", "y"])]
    for codes, works in (([0, 1], True), ([5, 7], False)):
        numbers = types if codes == [5, 7] else pa.array([0, 1], pa.int8())
        union = pa.UnionArray.from_sparse(numbers, children, ["i", "s"], codes)
        relation = peers.relation(peers.Batches(pa.record_batch({"a": union})))
        if works:
            assert relation.fetchall() == [(1,), ("y",)]
        else:
            with pytest.raises(Exception, match="union tag out of range: 5"):
                relation.fetchall()


def test_duckdb_drops_nanoseconds_of_durations():
    relation = peers.relation(peers.Batches(pa.record_batch({"a": pa.array([1999], pa.duration("ns"))})))
    assert relation.fetchall()[0][0].microseconds == 1


@pytest.mark.parametrize("name", sorted(peers.LISTS_OF_VIEWS))
def test_pandas_loses_slices_of_list_views(name):
    batch = arrays.CASES[name].batch("sliced")
    assert batch.column("a").to_pylist() == [[], [5, None, 6], [7, 8]]
    assert pandas.DataFrame.from_arrow(peers.Batches(batch))["a"].to_list() == [None] * 3


def test_polars_takes_a_copy_of_such_a_slice():
    """It has no offset, so the bitmap fits."""
    with GoBatch.make("fixed_size_list", "sliced") as item, item.copy_to_host() as copy, GoStream.of([copy]) as go:
        got = polars.DataFrame(peers.Hidden(go))["a"].to_list()
    assert got == [[5, None], [7, 8], [9, 10]]
