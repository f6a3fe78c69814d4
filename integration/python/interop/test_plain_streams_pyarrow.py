"""Plain streams between Go and PyArrow: every type, errors, and ends at any time. Other
peers are in test_plain_streams.py."""

import contextlib
import ctypes
import re

import pyarrow as pa
import pytest

import abi
import arrays
import cpp
import golib
import transfer
from golib import GoArray, GoBatch, GoError
from gostream import GoStream, released, wait_until
from streams import cpp_to_go, go_to_cpp
from test_types import assert_shared, each_case
from test_cpp_device_streams import TABLE, batches_of_two
from test_device_streams import FIRST, assert_valid, each_source, go_batches, reader, table
from test_device_stream_errors import FAILURES, failing, sources_of

FIELDS = pa.schema([pa.field("a", pa.int64(), metadata={"unit": "m"}), pa.field("s", pa.string(), nullable=False)], {"k": "v"})


def to_pyarrow(go):
    return pa.RecordBatchReader.from_stream(go)


# Every type.


@each_case
def test_pyarrow_arrives_in_go(name, variant):
    batch = arrays.CASES[name].batch(variant)
    with GoStream.from_arrow(reader(batch, batch), full_validation=True) as go, GoBatch.make(name, variant) as want, released(go) as items:
        assert len(items) == 2
        for item in items:
            assert item.difference(want) == ""
            assert_shared(item, batch, name, variant)


@each_case
def test_go_arrives_in_pyarrow(name, variant):
    want = arrays.CASES[name].batch(variant)
    with GoBatch.make(name, variant) as item, GoStream.of([item, item]) as go:
        read = list(to_pyarrow(go))
        assert len(read) == 2
        for batch in read:
            assert_valid(batch, name, variant)
            assert batch.equals(want)
            assert batch.schema.equals(want.schema, check_metadata=True)
            assert_shared(item, batch, name, variant)


@each_case
def test_pyarrow_comes_back_from_go(name, variant):
    want = arrays.CASES[name].batch(variant)
    with GoStream.from_arrow(reader(want, want)) as go:
        read = list(to_pyarrow(go))
    assert len(read) == 2
    for batch in read:
        assert_valid(batch, name, variant)
        assert batch.schema.equals(want.schema, check_metadata=True)
        assert batch.equals(want)
        assert transfer.same_memory(want, batch) >= 0


# All objects with __arrow_c_stream__, and all functions that take them.


def test_all_streams_of_structs_are_taken():
    for source in (TABLE, batches_of_two(), TABLE.to_struct_array()):
        with GoStream.from_arrow(source) as go:
            # A chunked array has no metadata.
            assert table(go).replace_schema_metadata(TABLE.schema.metadata).equals(TABLE), type(source)
    with GoStream.from_arrow(FIRST) as go:
        assert table(go).equals(TABLE.slice(0, 2))


def test_go_is_taken_as_a_table_and_as_a_reader():
    with go_batches() as items:
        with GoStream.of(items) as go:
            assert pa.table(go).equals(TABLE)
        with GoStream.of(items) as go:
            assert to_pyarrow(go).read_all().equals(TABLE)
        with GoStream.of(items) as go:
            assert pa.chunked_array(go).to_pylist() == TABLE.to_pylist()


def test_chunks_that_are_no_structs_are_a_stream_of_arrays():
    with pytest.raises(GoError, match=r'format = "l", want "\+s"'):
        GoStream.from_arrow(TABLE.column("a"))
    with GoStream.from_arrow(TABLE.column("a"), of_arrays=True) as go:
        back = pa.chunked_array(go)
    assert back.equals(TABLE.column("a"))


def test_go_arrays_arrive_as_chunks():
    with GoArray.make("int64", "nulls") as item, GoStream.of([item, item]) as go:
        chunked = pa.chunked_array(go)
        assert [chunk.to_pylist() for chunk in chunked.chunks] == [item.values()] * 2
        assert transfer.same_memory(item, chunked.chunk(0)) == 2
        del chunked


def test_chunks_reach_go_by_a_device_stream():
    column = pa.chunked_array([[1, None], [], [3]])
    with cpp.exported_chunks(column) as stream, GoStream.take(ctypes.addressof(stream), of_arrays=True) as go:
        with released(go) as items:
            assert [item.values() for item in items] == [[1, None], [], [3]]


@pytest.mark.parametrize("batches", [[], [FIRST.slice(0, 0)]], ids=["no_batches", "no_rows"])
def test_the_schema_arrives(batches):
    empty = [pa.record_batch({"a": [], "s": []}, schema=FIELDS) for _ in batches]
    with GoStream.from_arrow(pa.RecordBatchReader.from_batches(FIELDS, empty)) as go:
        said = go.describe()
        assert said["metadata"] == {"k": "v"}
        assert [(f["name"], f["nullable"], f["metadata"]) for f in said["fields"]] == [("a", True, {"unit": "m"}), ("s", False, {})]
        back = to_pyarrow(go)
        assert back.schema.equals(FIELDS, check_metadata=True)
        assert [batch.num_rows for batch in back] == [0] * len(batches)


# Between both kinds of streams.


def test_a_plain_stream_becomes_a_device_stream():
    batches = TABLE.to_batches(2)
    with GoStream.from_arrow(reader(*batches)) as go, go_to_cpp(go) as there:
        assert there.device_type == abi.CPU
        for batch in batches:
            assert transfer.same_memory(batch, there.read_next_batch()) == 5
        assert there.read_next_batch() is None


def test_a_device_stream_becomes_a_plain_stream():
    batches = TABLE.to_batches(2)
    with cpp_to_go(reader(*batches)) as go:
        back = to_pyarrow(go)
        for batch in batches:
            assert transfer.same_memory(batch, back.read_next_batch()) == 5
        with pytest.raises(StopIteration):
            back.read_next_batch()


def test_a_stream_of_copies_becomes_a_plain_stream():
    with GoStream.from_arrow(TABLE) as go, go.copy_to(abi.CPU) as copies:
        assert to_pyarrow(copies).read_all().equals(TABLE)
    wait_until(lambda: golib.stats()["exported_streams"] == 0)


# Errors.


@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("error", [OSError, ValueError, NotImplementedError, MemoryError])
def test_an_exception_in_python_is_the_error_in_go(error, after):
    def batches():
        yield from TABLE.to_batches(2)[:after]
        raise error("disk gone")

    with GoStream.from_arrow(pa.RecordBatchReader.from_batches(TABLE.schema, batches())) as go:
        for _ in range(after):
            go.next().release()
        for _ in range(2):
            with pytest.raises(GoError, match="disk gone"):
                go.next()


SEEN_AS = {"IOError": OSError, "Invalid": pa.ArrowInvalid, "NotImplemented": pa.ArrowNotImplementedError, "Out of memory": pa.ArrowMemoryError}


@pytest.mark.parametrize("failure", FAILURES)
def test_what_fails_in_go_is_an_exception_in_python(failure):
    """Of the class that its number stands for, with the text, and again when asked again."""
    _, seen_as, text = FAILURES[failure]
    for how in sources_of(failure):
        with GoBatch.make("utf8", "nulls") as item, failing(how, failure, 2, item) as go:
            there = to_pyarrow(go)
            go.release()
            for _ in range(2):
                assert there.read_next_batch().num_rows == 7
            for _ in range(2):
                with pytest.raises(SEEN_AS[seen_as], match=re.escape(text)):
                    there.read_next_batch()
            del there


def test_memory_that_the_host_cannot_read_is_an_exception():
    with cpp_to_go(batches_of_two(), device_type=abi.EXT_DEV) as go, pytest.raises(OSError, match="not supported"):
        to_pyarrow(go).read_next_batch()


# Early ends, and late ones.


@pytest.mark.parametrize("on_other_thread", [False, True])
@pytest.mark.parametrize("taken", range(5))
def test_go_releases_a_stream_of_pyarrow_at_any_time(on_other_thread, taken):
    """The source is Python's: its end takes the GIL, wherever it comes."""
    ended = []

    def batches():
        try:
            yield from TABLE.to_batches(2)
        finally:
            ended.append(True)

    with GoStream.from_arrow(pa.RecordBatchReader.from_batches(TABLE.schema, batches())) as go:
        with released(filter(None, [go.next() for _ in range(taken)])) as items:
            go.release(on_other_thread)
            assert ended == [True] * (taken > 0)
            assert [item.describe()["length"] for item in items] == [2] * min(taken, 3)


@each_source
@pytest.mark.parametrize("taken", range(4))
def test_pyarrow_releases_a_stream_of_go_at_any_time(how, taken):
    with go_batches() as items, GoStream.of(items, how=how) as go:
        there = to_pyarrow(go)
        go.release()
        kept = [there.read_next_batch() for _ in range(taken)]
        assert golib.stats()["sources"] == {"iterator": int(taken > 0), "function": 1, "table": 0}[how]
        del there
        assert golib.stats()["sources"] == 0
    assert pa.Table.from_batches(kept, TABLE.schema).equals(TABLE.slice(0, 2 * taken))


def test_a_capsule_that_nobody_takes_is_released():
    with go_batches() as items, GoStream.of(items, how="function") as go:
        capsule = go.__arrow_c_stream__()
        go.release()
        assert (golib.stats()["exported_streams"], golib.stats()["sources"]) == (1, 1)
        del capsule
        assert (golib.stats()["exported_streams"], golib.stats()["sources"]) == (0, 0)


def test_batches_of_pyarrow_outlive_their_stream():
    with GoStream.from_arrow(reader(*TABLE.to_batches(2))) as go:
        batch = go.next()
    with batch:
        golib.ext.free_memory()
        assert batch.values() == FIRST.to_pylist()


def test_python_memory_is_released_while_a_reader_of_go_ends():
    """The iterator runs on a goroutine of its own, and holds the last reference to
    memory whose release takes the GIL."""
    numbers = bytearray(80)
    array = pa.Array.from_buffers(pa.int64(), 10, [None, pa.py_buffer(numbers)])
    item = GoBatch.from_arrow(pa.record_batch([array], names=["n"]))
    with GoStream.of([item] * 3) as go:
        there = to_pyarrow(go)
    assert there.read_next_batch().num_rows == 10
    item.release()
    del array
    with pytest.raises(BufferError):
        numbers.append(0)
    del there
    numbers.append(0)


def test_many_plain_streams_leave_nothing():
    for i in range(200):
        with GoStream.from_arrow(TABLE.to_reader(max_chunksize=2)) as go:
            back = to_pyarrow(go)
            with contextlib.suppress(StopIteration):
                for _ in range(i % 5):
                    back.read_next_batch()
        del back
