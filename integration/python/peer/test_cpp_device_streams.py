"""Arrow C++ with itself, through the structs of the device stream interface: the peer
works, and this is its behaviour. Go is tested against it elsewhere."""

import ctypes
import errno
import threading

import pyarrow as pa
import pytest

import abi
import arrays
import cpp
import transfer
from streams import Spy

each_device = pytest.mark.parametrize("device_type", [abi.CPU, abi.EXT_DEV], ids=["cpu", "ext_dev"])
TABLE = pa.table({"a": [1, None, 3, 4, 5, 6], "s": ["x", None, "", "y" * 20, "z", None]}).replace_schema_metadata({"k": "v"})

# As after any import: test_pyarrow.test_empty_slice_of_views_is_not_valid_after_any_import.
NOT_VALID = [("binary_view", "empty_part"), ("utf8_view", "empty_part")]


def batches_of_two():
    return TABLE.to_reader(max_chunksize=2)


def test_structs_have_the_sizes_of_the_headers():
    assert ctypes.sizeof(abi.ArrowArrayStream) == 40
    assert ctypes.sizeof(abi.ArrowDeviceArrayStream) == 48
    assert ctypes.sizeof(abi.ArrowAsyncTask) == 16
    assert ctypes.sizeof(abi.ArrowAsyncProducer) == 40
    assert ctypes.sizeof(abi.ArrowAsyncDeviceStreamHandler) == 48


@each_device
@pytest.mark.parametrize("variant", ["valid", "nulls", "sliced", "empty", "empty_part"])
@pytest.mark.parametrize("name", arrays.CASES)
def test_every_type_comes_back(name, variant, device_type):
    batch = arrays.CASES[name].batch(variant)
    source = pa.RecordBatchReader.from_batches(batch.schema, [batch, batch])
    with cpp.exported(source, device_type=device_type) as stream, cpp.Reader(ctypes.addressof(stream)) as reader:
        assert reader.schema.equals(batch.schema, check_metadata=True)
        for back in (reader.read_next_batch(), reader.read_next_batch()):
            assert back.equals(batch)
            if (name, variant) not in NOT_VALID:
                back.validate(full=True)
        assert reader.read_next_batch() is None
        assert reader.read_next_batch() is None, "the end stays the end"


@each_device
def test_a_stream_says_its_device_and_its_schema(device_type):
    with cpp.exported(batches_of_two(), device_type=device_type) as stream:
        assert stream.device_type == device_type
        with cpp.Reader(ctypes.addressof(stream)) as reader:
            assert not abi.is_filled(stream), "the consumer moves the stream"
            assert reader.device_type == device_type
            assert reader.schema.metadata == {b"k": b"v"}
            assert reader.read_all().equals(TABLE)


def test_memory_is_shared():
    batch = pa.record_batch({"a": [1, None, 3], "l": [[1], None, [2, 3]]})
    with cpp.exported(pa.RecordBatchReader.from_batches(batch.schema, [batch])) as stream:
        with cpp.Reader(ctypes.addressof(stream)) as reader:
            assert transfer.same_memory(batch, reader.read_next_batch()) == 5


@pytest.mark.parametrize("device_type, device_id", [(abi.CPU, -1), (abi.EXT_DEV, 3)])
def test_arrays_say_where_they_are(device_type, device_id):
    with cpp.exported(batches_of_two(), device_type=device_type, device_id=device_id) as stream:
        array = abi.ArrowDeviceArray()
        assert abi.get_next(stream, array) == 0
        assert (array.device_type, array.device_id, array.sync_event) == (device_type, device_id, None)
        assert (array.array.length, array.array.n_children) == (2, 2)
        abi.release(array)


def test_memory_of_a_device_is_looked_at_through_its_manager_only():
    """Once per batch Arrow C++ asks for it: this is not the CPU in disguise."""
    before = cpp.counters()["device_mappings"]
    with cpp.exported(batches_of_two(), device_type=abi.EXT_DEV) as stream:
        with cpp.Reader(ctypes.addressof(stream)) as reader:
            batch = reader.read_next_batch()
            assert cpp.stats()["device_bytes"] > 0
            reader.read_all()
    assert cpp.counters()["device_mappings"] == before + 3
    del batch
    assert cpp.stats()["device_bytes"] == 0


def test_a_batch_is_copied_to_a_device_and_back():
    batch = pa.record_batch({"a": [1, None, 3], "s": ["x", None, "yy"]})
    there = cpp.copy_to_device(batch, 3)
    assert not there.is_cpu
    with abi.structs() as s:
        there._export_to_c_device(*s.addresses)
        assert (s.array.device_type, s.array.device_id, s.array.sync_event) == (abi.EXT_DEV, 3, None)
    assert there.copy_to(pa.default_cpu_memory_manager()).equals(batch)


@each_device
def test_batches_outlive_their_stream(device_type):
    with cpp.exported(batches_of_two(), device_type=device_type) as stream:
        with cpp.Reader(ctypes.addressof(stream)) as reader:
            batch = reader.read_next_batch()
    assert cpp.stats()["sources"] == 0
    assert batch.equals(TABLE.to_batches(2)[0])


@each_device
@pytest.mark.parametrize("taken", range(4))
def test_a_reader_is_closed_at_any_time(device_type, taken):
    with cpp.exported(batches_of_two(), device_type=device_type) as stream:
        reader = cpp.Reader(ctypes.addressof(stream))
        for _ in range(taken):
            assert reader.read_next_batch() is not None
        assert cpp.stats()["sources"] == 1
        reader.close()
        assert cpp.stats()["sources"] == 0


def test_a_stream_that_nobody_reads_is_released():
    with cpp.exported(batches_of_two()):
        assert cpp.stats()["sources"] == 1
    assert cpp.stats()["sources"] == 0


def test_release_of_a_stream_does_not_close_its_reader():
    """It destroys it. A source of Go's must not wait for more."""
    before = cpp.counters()["sources_closed"]
    with cpp.exported(batches_of_two()) as stream, cpp.Reader(ctypes.addressof(stream)) as reader:
        reader.read_next_batch()
    assert cpp.counters()["sources_closed"] == before


def test_a_stream_without_batches_has_a_schema():
    with cpp.exported(pa.RecordBatchReader.from_batches(TABLE.schema, [])) as stream, cpp.Reader(ctypes.addressof(stream)) as reader:
        assert reader.schema.equals(TABLE.schema, check_metadata=True)
        assert reader.read_next_batch() is None


def test_the_end_is_an_array_without_a_release():
    """Nothing else of the struct is said to be anything."""
    with cpp.exported(pa.RecordBatchReader.from_batches(TABLE.schema, [])) as stream:
        array = abi.ArrowDeviceArray()
        ctypes.memset(ctypes.addressof(array), 0xAA, ctypes.sizeof(array))
        assert abi.get_next(stream, array) == 0
        assert array.array.release is None


# The errno of a Status, and the consumer's Status for that errno.
ERRORS = {
    "IOError": (errno.EIO, "IOError"),
    "NotImplemented": (errno.ENOSYS, "NotImplemented"),
    "Out of memory": (errno.ENOMEM, "Out of memory"),
    "Invalid": (errno.EINVAL, "Invalid"),
    "Cancelled": (errno.EINVAL, "Invalid"),
    "Key error": (errno.EINVAL, "Invalid"),
    "Unknown error": (errno.EINVAL, "Invalid"),
}


@pytest.mark.parametrize("status", ERRORS)
def test_errors_have_a_number_and_a_text(status):
    number, _ = ERRORS[status]
    with cpp.exported(batches_of_two(), fails_after=0, status=status, message="no more") as stream:
        assert abi.get_next(stream, abi.ArrowDeviceArray()) == number
        assert abi.last_error(stream) == f"{status}: no more"


@each_device
@pytest.mark.parametrize("status", ERRORS)
@pytest.mark.parametrize("after", [0, 1, 3])
def test_errors_come_after_the_batches_before_them(device_type, status, after):
    _, seen_as = ERRORS[status]
    options = {"device_type": device_type, "fails_after": after, "status": status, "message": "no more"}
    with cpp.exported(batches_of_two(), **options) as stream, cpp.Reader(ctypes.addressof(stream)) as reader:
        for _ in range(after):
            assert reader.read_next_batch().num_rows == 2
        with pytest.raises(cpp.CppError, match=f"{status}: no more") as e:
            reader.read_next_batch()
    assert e.value.status == seen_as


def test_an_exception_in_a_python_source_is_the_error():
    def batches():
        yield from TABLE.to_batches(2)[:1]
        raise OSError("disk gone")

    with cpp.exported(pa.RecordBatchReader.from_batches(TABLE.schema, batches())) as stream:
        with cpp.Reader(ctypes.addressof(stream)) as reader:
            reader.read_next_batch()
            with pytest.raises(cpp.CppError, match="disk gone"):
                reader.read_next_batch()


def test_the_consumer_asks_again_after_the_end():
    """As often as its reader is asked."""
    with cpp.exported(batches_of_two()) as stream:
        spy = Spy(stream)
        with cpp.Reader(ctypes.addressof(stream)) as reader:
            assert [reader.read_next_batch() is not None for _ in range(5)] == [True] * 3 + [False] * 2
    assert spy.calls == ["get_schema"] + ["get_next"] * 5


def test_the_consumer_asks_again_after_an_error():
    with cpp.exported(batches_of_two()) as stream:
        spy = Spy(stream, "get_next", errno.EIO, b"disk gone")
        with cpp.Reader(ctypes.addressof(stream)) as reader:
            for _ in range(2):
                with pytest.raises(cpp.CppError, match="^IOError: disk gone$"):
                    reader.read_next_batch()
    assert spy.calls == ["get_schema"] + ["get_next", "get_last_error"] * 2


@pytest.mark.parametrize(
    "number, status",
    [
        (errno.ENOMEM, "Out of memory"), (errno.ENOSYS, "NotImplemented"), (errno.EINVAL, "Invalid"),
        (errno.ECANCELED, "IOError"), (9999, "IOError"),
    ],  # fmt: skip
)
@pytest.mark.parametrize("text", [b"some text", b"", None])
def test_what_the_consumer_makes_of_a_number(number, status, text):
    with cpp.exported(batches_of_two()) as stream:
        spy = Spy(stream, "get_next", number, text)
        with cpp.Reader(ctypes.addressof(stream)) as reader, pytest.raises(cpp.CppError) as e:
            reader.read_next_batch()
    assert (e.value.status, e.value.message) == (status, (text or b"").decode())
    assert spy.calls == ["get_schema", "get_next", "get_last_error"]


def test_a_stream_without_a_schema_is_released():
    with cpp.exported(batches_of_two()) as stream:
        spy = Spy(stream, "get_schema", errno.EIO, b"no schema")
        with pytest.raises(cpp.CppError, match="^IOError: no schema$"):
            cpp.Reader(ctypes.addressof(stream))
        assert not abi.is_filled(stream)
        assert spy.calls == ["get_schema", "get_last_error"]


def test_a_stream_of_an_unknown_device_is_refused_batch_by_batch():
    """The stream itself is imported: Arrow C++ looks at the arrays only."""
    with cpp.exported(batches_of_two()) as stream:
        stream.device_type = abi.CUDA
        with cpp.Reader(ctypes.addressof(stream)) as reader:
            assert reader.device_type == abi.CUDA
            assert reader.read_all().equals(TABLE)


def test_a_stream_is_read_on_any_thread():
    with cpp.exported(batches_of_two()) as stream, cpp.Reader(ctypes.addressof(stream)) as reader:
        read = []
        for _ in range(3):
            thread = threading.Thread(target=lambda: read.append(reader.read_next_batch()))
            thread.start()
            thread.join()
        assert pa.Table.from_batches(read).equals(TABLE)


def test_many_streams_leave_nothing():
    for i in range(500):
        with cpp.exported(batches_of_two(), device_type=(abi.CPU, abi.EXT_DEV)[i % 2]) as stream:
            if i % 3:
                with cpp.Reader(ctypes.addressof(stream)) as reader:
                    for _ in range(i % 5):
                        reader.read_next_batch()
