"""Memory lives as long as its last user, and no longer: conftest.py checks after each
test that both sides have as many objects as before."""

import itertools

import pyarrow as pa
import pytest

import abi
import golib
import transfer
from streams import on_threads

each_protocol = pytest.mark.parametrize("protocol", transfer.PROTOCOLS)

VALUES = [1, None, 3, 4, 5, 6, 7, None]  # of the case int64


def churn():
    """Overwrites freed memory that is still used: Go's garbage is collected, and both
    allocators hand the memory out again."""
    golib.ext.free_memory()
    for _ in range(20):
        with golib.GoBatch.make("int64", "valid"):
            pa.array([0x5555555555555555] * 8)


@each_protocol
def test_pyarrow_keeps_what_go_released(protocol):
    go = golib.GoBatch.make("int64", "nulls")
    arrow = transfer.to_pyarrow(go, protocol)
    go.release()
    churn()
    assert arrow.column(0).to_pylist() == VALUES
    assert golib.stats()["exported_arrays"] == 1


@each_protocol
def test_go_keeps_what_pyarrow_released(protocol):
    arrow = pa.record_batch({"a": VALUES})
    with transfer.to_go(arrow, protocol) as go:
        del arrow
        churn()
        assert [row["a"] for row in go.values()] == VALUES
        assert golib.stats()["imported_arrays"] == 1


@each_protocol
def test_column_in_pyarrow_outlives_its_batch(protocol):
    with golib.GoBatch.make("struct_nested", "nulls") as go:
        batch = transfer.to_pyarrow(go, protocol)
        want = go.values()
    inner = batch.column(1).field("p").field("name")
    del batch
    churn()
    assert inner.to_pylist()[0] == want[0]["b"]["p"]["name"] == "a"


@each_protocol
def test_parts_in_go_outlive_the_whole(protocol):
    with transfer.to_go(pa.record_batch({"a": ["x"] * 8, "b": VALUES}), protocol) as go:
        column = go.column(1)
    with column:
        part = column.slice(2, 5)
    with part:
        churn()
        assert part.values() == VALUES[2:5]
        assert golib.stats()["imported_arrays"] == 1


def test_child_moved_out_of_its_parent_outlives_it():
    """As the C data interface allows: the consumer takes one column for itself,
    and releases the rest."""
    with golib.GoBatch.make("int64", "nulls") as go, abi.structs() as s:
        go._export_to_c_device(*s.addresses)
        column = abi.ArrowDeviceArray.from_buffer_copy(s.array)
        column.array = s.array.array.children[1].contents
        s.array.array.children[1].contents.release = None
        abi.release(s.array)
    churn()
    assert golib.stats()["exported_arrays"] == 1
    with golib.GoArray.make("int64", "valid") as typed, abi.structs() as s:
        s.array = column
        golib.ext.export_schema(typed.object, s.addresses[1])
        assert pa.Array._import_from_c_device(*s.addresses).to_pylist() == VALUES


@each_protocol
@pytest.mark.parametrize("start", ["go", "pyarrow"])
def test_releases_in_any_order(protocol, start):
    """Four owners of one memory, each imported from the one before."""
    for order in itertools.permutations(range(4)):
        owners = [golib.GoArray.make("int64", "nulls") if start == "go" else pa.array(VALUES)]
        while len(owners) < 4:
            go = isinstance(owners[-1], golib.GoArray)
            owners.append((transfer.to_pyarrow if go else transfer.to_go)(owners[-1], protocol))
        for i in order:
            if isinstance(owners[i], golib.GoArray):
                owners[i].release()
            owners[i] = None
            golib.ext.free_memory()
            for owner in filter(None, owners):
                assert (owner.values() if isinstance(owner, golib.GoArray) else owner.to_pylist()) == VALUES, order


def test_one_array_is_exported_many_times():
    with golib.GoArray.make("utf8", "nulls") as go:
        copies = [pa.array(go) for _ in range(100)]
        want = go.values()
    del copies[::2]
    churn()
    assert all(copy.to_pylist() == want for copy in copies)
    assert golib.stats()["exported_arrays"] == 50


def test_exports_that_nobody_consumes_are_released():
    def exports():
        return golib.stats()["exported_blocks"], golib.stats()["exported_arrays"]

    with golib.GoBatch.make("list_struct", "nulls") as go:
        capsules = go.__arrow_c_device_array__(), go.__arrow_c_schema__()
        assert exports() == (3, 1)
        del capsules
        assert exports() == (0, 0)
        with abi.structs() as s:
            go._export_to_c_device(*s.addresses)
            assert exports() == (2, 1)
        assert exports() == (0, 0)


def test_capsules_are_consumed_once():
    with golib.GoArray.make("utf8", "nulls") as go:
        capsules = go.__arrow_c_device_array__()
        arrow = pa.Array._import_from_c_device_capsule(*capsules)
        with pytest.raises(pa.ArrowInvalid, match="released"):
            pa.Array._import_from_c_device_capsule(*capsules)
        with pytest.raises(golib.GoError, match="Arrow(Schema|DeviceArray) was consumed or released before"):
            golib.GoArray.from_capsules(*capsules)
        del capsules
        assert arrow.to_pylist() == go.values()


def test_memory_of_python_objects_is_released_on_a_thread_that_python_never_saw():
    """The last release of such a buffer takes the GIL, wherever it happens."""
    text = bytearray(b"hello and a tail")
    array = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(b"\x00\x00\x00\x00\x05\x00\x00\x00"), pa.py_buffer(text)])
    go = golib.GoArray.from_arrow(array, full_validation=True)
    del array
    with pytest.raises(BufferError):
        text.append(0)  # Go still uses the buffer
    go.release(on_other_thread=True)
    text.append(0)


def test_go_memory_is_released_by_many_python_threads():
    with golib.GoBatch.make("struct_nested", "nulls") as go:
        copies = [pa.record_batch(go) for _ in range(400)]
    on_threads(8, lambda _: [copies.pop() for _ in range(50)])
    assert not copies
    assert golib.stats()["exported_arrays"] == 0


def test_pyarrow_memory_is_released_by_many_go_threads():
    before = pa.total_allocated_bytes()
    arrow = pa.record_batch({"a": VALUES, "t": ["x"] * 8})
    imported = [golib.GoBatch.from_arrow(arrow) for _ in range(400)]
    del arrow
    on_threads(8, lambda _: [imported.pop().release(on_other_thread=True) for _ in range(50)])
    assert golib.stats()["imported_arrays"] == 0
    assert pa.total_allocated_bytes() == before


def test_one_batch_is_shared_by_many_threads():
    """Each thread exports, imports, reads and releases the same batches."""
    with golib.GoBatch.make("list_struct", "nulls") as go:
        arrow, want = pa.record_batch(go), go.values()

        def work(_):
            for i in range(25):
                protocol = transfer.PROTOCOLS[i % len(transfer.PROTOCOLS)]
                assert transfer.to_pyarrow(go, protocol).equals(arrow)
                with transfer.to_go(arrow, protocol) as back:
                    assert back.values() == want
                    transfer.same_memory(back, arrow)

        on_threads(8, work)


@each_protocol
def test_thousands_of_round_trips_leave_nothing(protocol):
    array = pa.array([["a", None], [], None, ["bcd"]])
    batch = pa.record_batch([array, array.slice(1).take(pa.array([0, 1, 2, 0]))], names=["a", "b"])
    before = pa.total_allocated_bytes(), golib.stats()
    for _ in range(3000):
        with transfer.to_go(batch, protocol) as go:
            back = transfer.to_pyarrow(go, protocol)
        assert back.num_rows == 4
        del back
    assert (pa.total_allocated_bytes(), golib.stats()) == before
