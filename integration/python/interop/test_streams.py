"""Streams between Go and PyArrow or Arrow C++: batches, memory, ends and threads. Every type is in test_types.py, errors
are in test_stream_errors.py, other peers in test_peers.py."""

import contextlib
import ctypes

import pyarrow as pa
import pytest

import abi
import cpp
import golib
import transfer
from golib import GoArray, GoBatch, GoError
from gostream import GoStream, released, wait_until
from streams import BATCHES, FIRST, LINKS, SOURCES, TABLE, Plain, Spy, cpp_to_go, go_batches, go_to_cpp, on_threads, reader, rows

each_link = pytest.mark.parametrize("link", LINKS, ids=lambda link: link.name)
each_host_link = pytest.mark.parametrize("link", LINKS[:2], ids=lambda link: link.name)
each_source = pytest.mark.parametrize("how", SOURCES)
each_thread = pytest.mark.parametrize("on_other_thread", [False, True], ids=["this thread", "another thread"])


def alive():
    """What a stream of PyArrow's holds, and Go's imports of it."""
    stats = golib.stats()
    return cpp.stats()["sources"], stats["imported_streams"], stats["imported_arrays"]


def exported():
    """Sources of Go's that run or may still be called, and exported streams."""
    return golib.stats()["sources"], golib.stats()["exported_streams"]


# What is a stream.


def test_objects_with_streams_of_structs_are_taken():
    for source in (TABLE, reader(), TABLE.to_struct_array()):
        with GoStream.from_arrow(source) as go:
            assert [row for item in rows(go) for row in item] == TABLE.to_pylist(), type(source)
    with GoStream.from_arrow(FIRST) as go:
        assert rows(go) == [FIRST.to_pylist()]


@pytest.mark.parametrize("take", [pa.table, lambda go: pa.RecordBatchReader.from_stream(go).read_all(), pa.chunked_array])
def test_go_is_taken_as_a_stream(take):
    with go_batches() as items, GoStream.of(items) as go:
        assert take(go).to_pylist() == TABLE.to_pylist()


def test_chunks_keep_their_order():
    chunks = [[1, None], [], [3], [4, 5, 6]]
    with cpp.exported_chunks(pa.chunked_array(chunks, pa.int64())) as stream:
        with GoStream.take(ctypes.addressof(stream), of_arrays=True) as go, released(go) as items:
            assert [item.values() for item in items] == chunks
            for how in ("iterator", "chunked"):
                with GoStream.of(items, how=how) as again, again.exported() as back:
                    assert [chunk.to_pylist() for chunk in cpp.read_chunks(ctypes.addressof(back)).chunks] == chunks, how


def test_plain_streams_of_arrays():
    with pytest.raises(GoError, match=r'format = "l", want "\+s"'):
        GoStream.from_arrow(TABLE.column("a"))
    with GoStream.from_arrow(TABLE.column("a"), of_arrays=True) as go:
        assert pa.chunked_array(go).equals(TABLE.column("a"))
    with GoArray.make("int64", "nulls") as item, GoStream.of([item, item]) as go:
        chunked = pa.chunked_array(go)
        assert [chunk.to_pylist() for chunk in chunked.chunks] == [item.values()] * 2
        assert transfer.same_memory(item, chunked.chunk(0)) == 2
        del chunked


# The schema and the device of a stream.


@each_link
def test_go_knows_the_device_and_the_schema(link):
    with link.to_go(reader(), **({"device_id": 3} if link.device_type == abi.EXT_DEV else {})) as go:
        said = go.describe()
        assert (said["kind"], said["device"]) == ("batch", {abi.CPU: "cpu", abi.EXT_DEV: "ext_dev"}[link.device_type])
        assert [field["name"] for field in said["fields"]] == ["a", "s"]
        assert said["metadata"] == {"k": "v"}
        with go.next() as batch:
            assert batch.describe()["device"] == {abi.CPU: "cpu", abi.EXT_DEV: "ext_dev:3"}[link.device_type]
            assert batch.describe()["metadata"] == {"k": "v"}


@each_source
@each_host_link
def test_all_of_a_schema_arrives_without_batches(link, how):
    with GoBatch.make_annotated() as item:
        schema = pa.record_batch(item).schema
        assert schema.metadata and schema.field("ünïcode").metadata
        with GoStream.of([], like=item, how=how) as go, link.from_go(go) as there:
            assert there.schema.equals(schema, check_metadata=True)
            assert [there.read_next_batch() for _ in range(3)] == [None] * 3
        with link.to_go(reader([], schema)) as back:
            assert back.describe()["fields"] == item.describe()["fields"]
            assert back.describe()["metadata"] == item.describe()["metadata"]
            assert back.next() is None


@each_host_link
def test_batches_without_rows_or_columns_are_counted(link):
    for batch in (FIRST.slice(0, 0), pa.RecordBatch.from_struct_array(pa.array([{}] * 4, pa.struct([])))):
        with link.to_go(reader([batch])) as go, link.from_go(go) as back:
            assert back.read_next_batch().num_rows == batch.num_rows
            assert back.read_next_batch() is None


# The end.


@each_host_link
def test_a_consumer_may_ask_go_again_after_the_end(link):
    with go_batches() as items, GoStream.of(items) as go, link.from_go(go) as there:
        assert [there.read_next_batch() is not None for _ in range(6)] == [True] * 3 + [False] * 3


@pytest.mark.parametrize("device_type", [abi.CPU, abi.EXT_DEV], ids=["cpu", "ext_dev"])
def test_go_does_not_ask_again_after_the_end(device_type):
    with cpp.exported(reader(), device_type=device_type) as stream:
        spy = Spy(stream)
        with GoStream.take(ctypes.addressof(stream)) as go:
            assert spy.calls == ["get_schema"]
            with released(go) as items:
                assert len(items) == 3
            assert [go.next() for _ in range(3)] == [None] * 3
    assert spy.calls == ["get_schema"] + ["get_next"] * 4


def test_the_end_that_go_gives_is_a_released_array():
    """Even if the struct held other values before."""
    with go_batches() as items, GoStream.of([], like=items[0]) as go, go.exported() as stream:
        array = abi.ArrowDeviceArray()
        ctypes.memset(ctypes.addressof(array), 0xAA, ctypes.sizeof(array))
        assert abi.get_next(stream, array) == 0
        assert array.array.release is None


# Where the memory is.


def test_memory_of_an_unknown_device_is_handed_on_where_it_is():
    with cpp_to_go(reader(), device_type=abi.EXT_DEV, device_id=3) as go, released(go) as items:
        with contextlib.ExitStack() as stack:
            structs = [stack.enter_context(abi.structs()) for _ in items]
            for item, s in zip(items, structs):
                item._export_to_c_device(*s.addresses)
                assert (s.array.device_type, s.array.device_id, s.array.sync_event) == (abi.EXT_DEV, 3, None)
            left = [abi.buffer_addresses(s.array.array) for s in structs]
        mapped = cpp.counters()["device_mappings"]
        with GoStream.of(items) as again, go_to_cpp(again) as back:
            read = list(back)
        assert cpp.counters()["device_mappings"] == mapped + 3, "for Arrow C++ it is on that device"
        assert pa.Table.from_batches(read).equals(TABLE)
        for batch, want in zip(read, left):
            with abi.structs() as s:
                batch._export_to_c_device(*s.addresses)
                assert [a for a in abi.buffer_addresses(s.array.array) if a] == [a for a in want if a]


def test_memory_of_an_unknown_device_is_not_read():
    with cpp_to_go(reader(), device_type=abi.EXT_DEV) as go:
        with go.next() as batch, pytest.raises(GoError, match="not supported"):
            batch.values()
        with go.through_arrow_go() as host, pytest.raises(GoError, match="not supported"):
            host.next()
        with go.exported(for_host=True) as stream:
            assert stream.device_type == abi.CPU
            with cpp.Reader(ctypes.addressof(stream)) as there, pytest.raises(cpp.CppError, match="not supported"):
                there.read_next_batch()
        with pytest.raises(GoError, match="not supported"):
            go.copy_to(abi.EXT_DEV)
    with cpp_to_go(reader(), device_type=abi.EXT_DEV, full_validation=True) as go, pytest.raises(GoError, match="not supported"):
        go.next()
    with cpp_to_go(reader(), device_type=abi.EXT_DEV) as go, pytest.raises(OSError, match="not supported"):
        pa.RecordBatchReader.from_stream(go).read_next_batch()


@pytest.mark.parametrize("come, leave", [(LINKS[0], LINKS[1]), (LINKS[1], LINKS[0])], ids=["plain to device", "device to plain"])
def test_a_stream_of_one_kind_becomes_one_of_the_other(come, leave):
    with come.to_go(reader()) as go, leave.from_go(go) as back:
        for batch in BATCHES:
            assert transfer.same_memory(batch, back.read_next_batch()) == 5
        assert back.read_next_batch() is None


def test_what_arrow_go_read_is_the_same_memory():
    """But Go exports its own arrays without their bitmaps, if they have no nulls."""
    with cpp_to_go(reader()) as go, go.through_arrow_go() as host, go_to_cpp(host) as back:
        for batch in BATCHES:
            bitmaps = sum(column.null_count > 0 for column in batch.columns)
            assert transfer.same_memory(batch, back.read_next_batch()) == 3 + bitmaps
        assert back.read_next_batch() is None


@each_host_link
def test_copies_are_other_memory(link):
    with link.to_go(reader()) as go, go.copy_to(abi.CPU) as copies, link.from_go(copies) as back:
        read = list(back)
        assert pa.Table.from_batches(read).equals(TABLE)
        with pytest.raises(transfer.NotShared):
            transfer.same_memory(FIRST, read[0])
    wait_until(lambda: cpp.stats()["sources"] == golib.stats()["exported_streams"] == 0)
    assert golib.stats()["exported_arrays"] > 0, "Go's own memory, which is read here"


# Prefetch.


@pytest.mark.parametrize("taken", range(5))
def test_a_stream_that_is_ahead_is_released_at_any_time(taken):
    with cpp_to_go(TABLE.to_reader(max_chunksize=1), prefetch=2) as go, released(go.next() for _ in range(taken)):
        pass
    wait_until(lambda: alive() == (0, 0, 0))


# Early ends, and late ones.


@pytest.mark.parametrize("device_type", [abi.CPU, abi.EXT_DEV], ids=["cpu", "ext_dev"])
@each_thread
@pytest.mark.parametrize("taken", range(5))
def test_go_releases_a_device_stream_at_any_time(device_type, on_other_thread, taken):
    with cpp_to_go(reader(), device_type=device_type) as go, released(filter(None, [go.next() for _ in range(taken)])) as items:
        assert alive() == (1, 1, min(taken, 3))
        go.release(on_other_thread)
        assert alive() == (0, 0, len(items))


@each_thread
@pytest.mark.parametrize("taken", range(5))
def test_go_releases_a_source_in_python_at_any_time(on_other_thread, taken):
    """Its end takes the GIL, wherever it comes."""
    ended = []

    def batches():
        try:
            yield from BATCHES
        finally:
            ended.append(True)

    with Plain.to_go(reader(batches(), TABLE.schema)) as go, released(filter(None, [go.next() for _ in range(taken)])) as items:
        go.release(on_other_thread)
        assert ended == [True] * (taken > 0)
        assert [item.describe()["length"] for item in items] == [2] * min(taken, 3)


def test_a_release_may_take_the_gil():
    """As an option: Arrow C++ has no need of it, but the source here is Python's."""
    with cpp.exported(reader((batch for batch in BATCHES), TABLE.schema)) as stream:
        with GoStream.take(ctypes.addressof(stream), prefetch=1, with_gil=True) as go, released([go.next(), go.next()]):
            go.release(on_other_thread=True)
        wait_until(lambda: alive() == (0, 0, 0))


@each_source
@each_host_link
@pytest.mark.parametrize("taken", range(5))
def test_a_consumer_releases_a_stream_of_go_at_any_time(link, how, taken):
    with go_batches() as items, GoStream.of(items, how=how) as go, link.from_go(go) as there:
        go.release()
        kept = [there.read_next_batch() for _ in range(taken)]
        assert exported() == ({"iterator": int(0 < taken < 4), "function": 1, "table": 0}[how], 1)
        there.close()
        assert exported() == (0, 0)
    assert pa.Table.from_batches(kept[:3], TABLE.schema).equals(TABLE.slice(0, 2 * taken))


@pytest.mark.parametrize("how", ["iterator", "function"])
def test_a_stream_of_go_that_nobody_reads_is_released(how):
    with go_batches() as items, GoStream.of(items, how=how) as go:
        capsule = go.__arrow_c_stream__()
        with go.exported():
            go.release()
            assert golib.stats()["exported_streams"] == 2
        assert golib.stats()["exported_streams"] == 1
        del capsule
        assert exported() == (0, 0)


@each_link
def test_batches_outlive_their_stream(link):
    with link.to_go(reader()) as go:
        batch = go.next()
    assert cpp.stats()["sources"] == 0
    with batch:
        golib.ext.free_memory()
        with GoStream.of([batch]) as again, go_to_cpp(again) as back:
            assert back.read_next_batch().equals(FIRST)


@each_source
def test_batches_of_go_outlive_their_stream(how):
    with go_batches() as items, GoStream.of(items, how=how) as go, go_to_cpp(go) as there:
        batch = there.read_next_batch()
    assert golib.stats()["handles"] == 0
    golib.ext.free_memory()
    assert batch.equals(FIRST)
    assert golib.stats()["exported_arrays"] == 1


def test_python_memory_is_released_while_a_reader_of_go_ends():
    """The iterator runs on a goroutine of its own, and holds the last reference to
    memory whose release takes the GIL."""
    numbers = bytearray(80)
    array = pa.Array.from_buffers(pa.int64(), 10, [None, pa.py_buffer(numbers)])
    item = GoBatch.from_arrow(pa.record_batch([array], names=["n"]))
    with GoStream.of([item] * 3) as go:
        there = pa.RecordBatchReader.from_stream(go)
    assert there.read_next_batch().num_rows == 10
    item.release()
    del array
    with pytest.raises(BufferError):
        numbers.append(0)
    del there
    numbers.append(0)


def test_one_reader_is_exported_twice():
    with go_batches() as items, GoStream.of(items) as go, go_to_cpp(go) as one, go_to_cpp(go) as other:
        go.release()
        read = [one.read_next_batch(), other.read_next_batch()]
        one.close()
        read.append(other.read_next_batch())
        assert pa.Table.from_batches(read).equals(TABLE)


# Threads.


@each_link
def test_a_stream_is_read_on_any_thread(link):
    with link.to_go(reader()) as go, link.from_go(go) as back:
        read = []
        for _ in BATCHES:
            on_threads(1, lambda _: read.append(back.read_next_batch()))
        assert pa.Table.from_batches(read).equals(TABLE)


def test_many_streams_leave_nothing():
    for i in range(300):
        link = LINKS[i % 3]
        with link.to_go(reader(), prefetch=i % 4 if link is not Plain else 0) as go, link.from_go(go) as back:
            for _ in range(i % 5):
                back.read_next_batch()
        with go_batches() as items, GoStream.of(items, how=SOURCES[i % 3]) as go, link.from_go(go) as there:
            for _ in range(i % 5):
                there.read_next_batch()
    wait_until(lambda: alive() == (0, 0, 0))
