"""Device streams between Go and Arrow C++: values, memory, and lifetimes. Errors are in
test_device_stream_errors.py."""

import contextlib
import ctypes
import threading

import pyarrow as pa
import pytest

import abi
import arrays
import cpp
import golib
import transfer
from golib import GoArray, GoBatch
from gostream import GoStream, released, wait_until
from streams import Spy, cpp_to_go, go_to_cpp
from test_types import VARIANTS, assert_shared, each_case
from test_cpp_device_streams import NOT_VALID, TABLE, batches_of_two, each_device

SOURCES = ["iterator", "function", "table"]
each_source = pytest.mark.parametrize("how", SOURCES)
FIRST = TABLE.to_batches(2)[0]


def reader(*batches):
    return pa.RecordBatchReader.from_batches(batches[0].schema, batches)


@contextlib.contextmanager
def go_batches():
    """The batches of TABLE, in Go."""
    with released(transfer.to_go(batch, "pointer") for batch in TABLE.to_batches(2)) as items:
        yield items


def table(items):
    """The values that Go read."""
    with released(items) as batches:
        return pa.Table.from_batches(transfer.to_pyarrow(batch, "pointer") for batch in batches)


def assert_valid(batch, name, variant):
    if (name, variant) not in NOT_VALID:
        batch.validate(full=True)


# Every type.


@each_case
def test_cpp_arrives_in_go(name, variant):
    batch = arrays.CASES[name].batch(variant)
    with cpp_to_go(reader(batch, batch), full_validation=True) as go, GoBatch.make(name, variant) as want:
        with released(go) as items:
            assert len(items) == 2
            for item in items:
                assert item.difference(want) == ""
                assert_shared(item, batch, name, variant)


@each_case
def test_go_arrives_in_cpp(name, variant):
    want = arrays.CASES[name].batch(variant)
    for how in SOURCES:
        with GoBatch.make(name, variant) as item, GoStream.of([item, item], how=how) as go, go_to_cpp(go) as back:
            assert back.schema.equals(want.schema, check_metadata=True)
            read = list(back)
            # A table is read by its rows: arrow-go leaves out batches without rows.
            assert len(read) == (0 if how == "table" and want.num_rows == 0 else 2), how
            for batch in read:
                assert batch.equals(want), how
                assert_valid(batch, name, variant)
                assert_shared(item, batch, name, variant)


# Arrow C++ reports the CPU for a batch without any buffer, even in a stream of another
# device; Go wants one device type throughout.
WITHOUT_BUFFERS = [*(("null", variant) for variant in VARIANTS), ("struct_empty", "valid"), ("struct_empty", "empty")]


@each_device
@each_case
def test_cpp_comes_back_from_go(request, device_type, name, variant):
    if device_type != abi.CPU and (name, variant) in WITHOUT_BUFFERS:
        request.applymarker(pytest.mark.xfail(strict=True, raises=cpp.CppError, reason="device_type = 1, want 12"))
    want = arrays.CASES[name].batch(variant)
    with cpp_to_go(reader(want, want), device_type=device_type) as go, go_to_cpp(go) as back:
        assert back.device_type == device_type
        assert back.schema.equals(want.schema, check_metadata=True)
        read = list(back)
    assert len(read) == 2
    for batch in read:
        assert batch.equals(want)
        assert_valid(batch, name, variant)
        if device_type == abi.CPU:
            assert transfer.same_memory(want, batch) >= 0


@each_case
def test_go_comes_back_from_cpp(name, variant):
    with GoBatch.make(name, variant) as item, GoStream.of([item, item]) as there, go_to_cpp(there) as read:
        source = pa.RecordBatchReader.from_batches(read.schema, read)
        with cpp_to_go(source, full_validation=True) as back, released(back) as items:
            assert len(items) == 2
            for other in items:
                assert other.difference(item) == ""
                assert_shared(item, other, name, variant)
        source.close()


@each_case
def test_chunks_of_cpp_arrive_in_go(name, variant):
    array = arrays.CASES[name].array(variant)
    chunked = pa.chunked_array([array, array], array.type)
    with cpp.exported_chunks(chunked) as stream:
        with GoStream.take(ctypes.addressof(stream), of_arrays=True, full_validation=True) as go, GoArray.make(name, variant) as want:
            with released(go) as items:
                assert len(items) == 2
                for item in items:
                    assert item.difference(want) == ""
                    assert_shared(item, array, name, variant)


@each_case
def test_chunks_of_go_arrive_in_cpp(name, variant):
    want = arrays.CASES[name].array(variant)
    for how in ("iterator", "chunked"):
        with GoArray.make(name, variant) as item, GoStream.of([item, item], how=how) as go, go.exported() as stream:
            chunked = cpp.read_chunks(ctypes.addressof(stream))
            assert chunked.type == want.type
            assert [chunk.equals(want) for chunk in chunked.chunks] == [True, True], how
            for chunk in chunked.chunks:
                assert_valid(chunk, name, variant)
                assert_shared(item, chunk, name, variant)


def test_chunks_keep_their_order():
    chunks = [[1, None], [], [3], [4, 5, 6]]
    with cpp.exported_chunks(pa.chunked_array(chunks, pa.int64())) as stream:
        with GoStream.take(ctypes.addressof(stream), of_arrays=True) as go, released(go) as items:
            assert [item.values() for item in items] == chunks
            for how in ("iterator", "chunked"):
                with GoStream.of(items, how=how) as again, again.exported() as back:
                    assert [chunk.to_pylist() for chunk in cpp.read_chunks(ctypes.addressof(back)).chunks] == chunks, how


# The schema and the device of a stream.


@each_device
def test_go_knows_the_device_and_the_schema(device_type):
    with cpp_to_go(batches_of_two(), device_type=device_type, device_id=-1 if device_type == abi.CPU else 3) as go:
        said = go.describe()
        assert (said["kind"], said["device"]) == ("batch", {abi.CPU: "cpu", abi.EXT_DEV: "ext_dev"}[device_type])
        assert [field["name"] for field in said["fields"]] == ["a", "s"]
        assert said["metadata"] == {"k": "v"}
        with go.next() as batch:
            assert batch.describe()["device"] == {abi.CPU: "cpu", abi.EXT_DEV: "ext_dev:3"}[device_type]
            assert batch.describe()["metadata"] == {"k": "v"}


@each_source
def test_all_of_a_schema_arrives(how):
    with GoBatch.make_annotated() as item:
        schema = pa.record_batch(item).schema
        assert schema.metadata and schema.field("ünïcode").metadata
        with GoStream.of([], like=item, how=how) as go, go_to_cpp(go) as there:
            assert there.schema.equals(schema, check_metadata=True)
            assert there.read_next_batch() is None
        with cpp_to_go(pa.RecordBatchReader.from_batches(schema, [])) as back:
            assert back.describe()["fields"] == item.describe()["fields"]
            assert back.describe()["metadata"] == item.describe()["metadata"]
            assert back.next() is None


@each_source
def test_a_stream_without_batches_has_a_schema(how):
    with GoBatch.make("list_struct", "nulls") as like, GoStream.of([], like=like, how=how) as go, go_to_cpp(go) as there:
        assert there.schema.equals(arrays.CASES["list_struct"].batch("nulls").schema)
        assert [there.read_next_batch() for _ in range(3)] == [None] * 3


def test_rows_without_columns_are_counted():
    batch = pa.RecordBatch.from_struct_array(pa.array([{}] * 4, pa.struct([])))
    with cpp_to_go(reader(batch)) as go, go_to_cpp(go) as back:
        assert back.read_next_batch().num_rows == batch.num_rows == 4


# The end.


def test_cpp_may_ask_go_again_after_the_end():
    with go_batches() as items, GoStream.of(items) as go, go_to_cpp(go) as there:
        assert [there.read_next_batch() is not None for _ in range(6)] == [True] * 3 + [False] * 3


@each_device
def test_go_does_not_ask_again_after_the_end(device_type):
    with cpp.exported(batches_of_two(), device_type=device_type) as stream:
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


# A device that Go has no backend for.


def test_memory_of_an_unknown_device_is_handed_on_where_it_is():
    with cpp_to_go(batches_of_two(), device_type=abi.EXT_DEV, device_id=3) as go, released(go) as items:
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
    with cpp_to_go(batches_of_two(), device_type=abi.EXT_DEV) as go:
        with go.next() as batch, pytest.raises(golib.GoError, match="not supported"):
            batch.values()
        with go.through_arrow_go() as host, pytest.raises(golib.GoError, match="not supported"):
            host.next()
        with go.exported(for_host=True) as stream:
            assert stream.device_type == abi.CPU
            with cpp.Reader(ctypes.addressof(stream)) as there, pytest.raises(cpp.CppError, match="not supported"):
                there.read_next_batch()
        with pytest.raises(golib.GoError, match="not supported"):
            go.copy_to(abi.EXT_DEV)
    with cpp_to_go(batches_of_two(), device_type=abi.EXT_DEV, full_validation=True) as go:
        with pytest.raises(golib.GoError, match="not supported"):
            go.next()


# In Go a stream goes through more hands.


def test_what_arrow_go_read_is_the_same_memory():
    """But Go exports its own arrays without their bitmaps, if they have no nulls."""
    batches = TABLE.to_batches(2)
    with cpp_to_go(reader(*batches)) as go, go.through_arrow_go() as host, go_to_cpp(host) as back:
        for batch in batches:
            bitmaps = sum(column.null_count > 0 for column in batch.columns)
            assert transfer.same_memory(batch, back.read_next_batch()) == 3 + bitmaps
        assert back.read_next_batch() is None


def test_copies_are_other_memory():
    batches = TABLE.to_batches(2)
    with cpp_to_go(reader(*batches)) as go, go.copy_to(abi.CPU) as copies, go_to_cpp(copies) as back:
        read = list(back)
        assert pa.Table.from_batches(read).equals(TABLE)
        with pytest.raises(transfer.NotShared):
            transfer.same_memory(batches[0], read[0])
    wait_until(lambda: cpp.stats()["sources"] == 0)
    assert golib.stats()["exported_arrays"] > 0, "Go's own memory, which is read here"


@pytest.mark.parametrize("depth", [1, 2, 10])
def test_go_asks_ahead(depth):
    """For as many as it may, and only when the first is asked for."""
    with cpp.exported(TABLE.to_reader(max_chunksize=1)) as stream:
        spy = Spy(stream)
        with GoStream.take(ctypes.addressof(stream), prefetch=depth) as go:
            assert spy.calls == ["get_schema"]
            with go.next():
                wait_until(lambda: spy.calls.count("get_next") == min(1 + depth, 7))
            assert table([*go]).num_rows == 5
        wait_until(lambda: cpp.stats()["sources"] == 0)
    assert spy.calls.count("get_next") == 7


@pytest.mark.parametrize("taken", range(5))
def test_a_stream_that_is_ahead_is_released_at_any_time(taken):
    with cpp_to_go(TABLE.to_reader(max_chunksize=1), prefetch=2) as go, released(go.next() for _ in range(taken)):
        pass
    wait_until(lambda: cpp.stats()["sources"] == golib.stats()["imported_streams"] == golib.stats()["imported_arrays"] == 0)


# Early ends, and late ones.


def test_a_release_may_take_the_gil():
    """As an option: Arrow C++ has no need of it, but the source here is Python's."""

    def batches():
        yield from TABLE.to_batches(2)

    with cpp.exported(pa.RecordBatchReader.from_batches(TABLE.schema, batches())) as stream:
        with GoStream.take(ctypes.addressof(stream), prefetch=1, with_gil=True) as go, released([go.next(), go.next()]):
            go.release(on_other_thread=True)
        wait_until(lambda: cpp.stats()["sources"] == golib.stats()["imported_arrays"] == 0)


@each_device
@pytest.mark.parametrize("on_other_thread", [False, True])
@pytest.mark.parametrize("taken", range(5))
def test_go_releases_a_stream_of_cpp_at_any_time(device_type, on_other_thread, taken):
    with cpp_to_go(batches_of_two(), device_type=device_type) as go:
        with released(filter(None, [go.next() for _ in range(taken)])) as items:
            assert len(items) == min(taken, 3)
            assert cpp.stats()["sources"] == golib.stats()["imported_streams"] == 1
            go.release(on_other_thread)
            assert cpp.stats()["sources"] == golib.stats()["imported_streams"] == 0
            assert golib.stats()["imported_arrays"] == len(items)


@each_source
@pytest.mark.parametrize("taken", range(5))
def test_cpp_releases_a_stream_of_go_at_any_time(how, taken):
    with go_batches() as items, GoStream.of(items, how=how) as go, go_to_cpp(go) as there:
        go.release()
        for _ in range(taken):
            there.read_next_batch()
        begun = {"iterator": int(0 < taken < 4), "function": 1, "table": 0}[how]
        assert (golib.stats()["sources"], golib.stats()["exported_streams"]) == (begun, 1)
        there.close()
        assert (golib.stats()["sources"], golib.stats()["exported_streams"]) == (0, 0)


@each_source
def test_a_stream_of_go_that_nobody_reads_is_released(how):
    with go_batches() as items, GoStream.of(items, how=how) as go:
        with go.exported():
            go.release()
            assert golib.stats()["exported_streams"] == 1
        assert (golib.stats()["sources"], golib.stats()["exported_streams"]) == (0, 0)


@each_device
def test_batches_of_cpp_outlive_their_stream(device_type):
    with cpp_to_go(batches_of_two(), device_type=device_type) as go:
        batch = go.next()
    assert cpp.stats()["sources"] == 0
    with batch, GoStream.of([batch]) as again, go_to_cpp(again) as back:
        assert back.read_next_batch().equals(FIRST)


@each_source
def test_batches_of_go_outlive_their_stream(how):
    with go_batches() as items, GoStream.of(items, how=how) as go:
        with go_to_cpp(go) as there:
            batch = there.read_next_batch()
    assert golib.stats()["handles"] == 0
    golib.ext.free_memory()
    assert batch.equals(FIRST)
    assert golib.stats()["exported_arrays"] == 1


def test_a_reader_and_its_export_share_the_batches():
    with go_batches() as items, GoStream.of(items) as go, go_to_cpp(go) as there:
        with go.next() as first:
            assert first.values() == FIRST.to_pylist()
        assert there.read_next_batch().equals(TABLE.to_batches(2)[1])
        with go.next() as third:
            assert third.values() == TABLE.to_batches(2)[2].to_pylist()
        assert there.read_next_batch() is None


def test_one_reader_is_exported_twice():
    with go_batches() as items, GoStream.of(items) as go, go_to_cpp(go) as one, go_to_cpp(go) as other:
        go.release()
        read = [one.read_next_batch(), other.read_next_batch()]
        one.close()
        read.append(other.read_next_batch())
        assert pa.Table.from_batches(read).equals(TABLE)


# Threads.


@each_device
def test_a_stream_is_read_on_any_thread(device_type):
    with cpp_to_go(batches_of_two(), device_type=device_type) as go, go_to_cpp(go) as back:
        read = []
        for _ in range(3):
            thread = threading.Thread(target=lambda: read.append(back.read_next_batch()))
            thread.start()
            thread.join()
        assert pa.Table.from_batches(read).equals(TABLE)


@pytest.mark.parametrize("how", ["iterator", "function"])
def test_many_threads_read_one_stream(how):
    """Through Go, which lets one ask at a time: each batch is read once."""
    batches = [pa.record_batch({"n": [n]}) for n in range(200)]
    with released(transfer.to_go(batch, "pointer") for batch in batches) as items, GoStream.of(items, how=how) as go:
        read, errors = [], []

        def work():
            try:
                for batch in go:
                    with batch:
                        read.extend(row["n"] for row in batch.values())
            except BaseException as e:
                errors.append(repr(e))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert sorted(read) == list(range(200))


def test_many_streams_leave_nothing():
    for i in range(300):
        device_type = (abi.CPU, abi.EXT_DEV)[i % 2]
        with cpp_to_go(batches_of_two(), device_type=device_type, prefetch=i % 3) as go, go_to_cpp(go) as back:
            for _ in range(i % 5):
                back.read_next_batch()
        with go_batches() as items, GoStream.of(items, how=SOURCES[i % 3]) as go, go_to_cpp(go) as there:
            for _ in range(i % 5):
                there.read_next_batch()
    wait_until(lambda: cpp.stats()["sources"] == golib.stats()["imported_streams"] == 0)
