"""Arrays that Go copied to the device: nanoarrow holds them, hands them on, looks into
them and copies them, and waits for their events."""

import ctypes
import gc

import golib
import pytest
from nanoarrow.device import DeviceType, c_device_array
from numba import cuda

import abi
import driver
import go
import nano
import simulator

pytestmark = pytest.mark.usefixtures("golang")


def arrives(name, stream, device=0, kind=golib.GoArray):
    for variant in go.VARIANTS:
        with go.on_device(name, variant, device, kind=kind) as made:
            array = c_device_array(made)
        assert (array.device_type, array.device_id) == (DeviceType.CUDA, device)
        back = go.copy_by_nanoarrow(array, stream)
        assert back.device_type == DeviceType.CPU
        assert go.difference(back, name, variant, kind) == "", variant


@pytest.mark.parametrize("name", go.SOME_PLAIN)
def test_arrives(name, stream):
    arrives(name, stream)


@pytest.mark.machines(*go.SIZES_CAN_BE_READ)
@pytest.mark.parametrize("name", go.SOME_STRINGS)
def test_strings_arrive(name, stream):
    arrives(name, stream)


@pytest.mark.machines("delayed")
@pytest.mark.parametrize("name", go.LOOKED_INTO)
def test_every_type_arrives(name, stream):
    arrives(name, stream)


@pytest.mark.machines(*go.SIZES_CAN_BE_READ)
@pytest.mark.parametrize("name", ["int64", "bool", "utf8", "struct_nested", "list_dictionary"])
def test_record_batch_arrives(name, stream):
    arrives(name, stream, kind=golib.GoBatch)


@pytest.mark.machines(*go.SIZES_CAN_BE_READ)
def test_values_as_nanoarrow_reads_them(stream):
    """Not by a comparison in Go: as the first test of all."""
    words = ["a", None, "", "a text that is longer than twelve bytes", "äöü", "another one of more than twelve", None]
    numbers = [1, None, 3, 4, 5, 6, 7, None]
    for name, variant, want in ("int32", "nulls", numbers), ("list", "sliced", [[], [5, None, 6], [7, 8]]), ("utf8", "nulls", words):
        with go.on_device(name, variant) as made:
            array = c_device_array(made)
        assert nano.values(go.copy_by_nanoarrow(array, stream)) == want
    with nano.View(array, stream) as view:
        assert view.sizes == [1, 32, len("".join(filter(None, words)).encode())]


@pytest.mark.machines("random")
@pytest.mark.parametrize("name", go.HANDED_ON)
def test_passes_through(name):
    """Including types that nanoarrow cannot read: the memory, the device and the event
    that come back are those that were exported."""
    for variant in go.VARIANTS:
        with go.on_device(name, variant) as made:
            left, array = go.Place(made), c_device_array(made)
        assert left.device == (abi.CUDA, 0) and left.event
        assert go.Place(array) == left, variant
        with golib.GoArray.from_arrow(array) as back:
            assert go.Place(back) == left, variant
            assert back.describe()["device"] == "cuda:0"
            del array
            assert go.device_difference(back, name, variant) == "", variant


@pytest.mark.two_devices
@pytest.mark.parametrize("name", ["int64", "bool", "utf8", "struct_nested"])
def test_on_the_second_device(name):
    with cuda.gpus[1], driver.stream() as other:
        arrives(name, other, device=1)
    for variant in go.VARIANTS:
        with go.on_device(name, variant, device=1) as made, golib.GoArray.from_arrow(c_device_array(made)) as back:
            assert back.describe()["device"] == "cuda:1"
            assert go.device_difference(back, name, variant) == ""


@pytest.mark.parametrize("name", go.SOME_PLAIN[1:])  # but for null, which has no memory
def test_stream_waits_for_the_event(name, stream, other):
    """The producer's stream is held back, so that nothing is there yet."""
    gpu = nano.resolve(nano.CUDA, 0)
    with driver.gate(stream) as gate:
        with go.on_device(name, "nulls", stream=stream) as made:
            assert not made.ready()
            array = c_device_array(made)
        assert not driver.is_complete(nano.event(array))
        nano.wait(gpu, nano.sync_event(array), other)
        copied = nano.copy(array, gpu, other)
        assert not driver.is_complete(nano.event(copied))
        gate.open()
        assert go.difference(go.copy_by_nanoarrow(copied, other), name, "nulls") == ""
        del array  # which `other` has read


@pytest.mark.machines(*go.SIZES_CAN_BE_READ)
@pytest.mark.parametrize("name", go.SOME_STRINGS)
def test_sizes_are_read_after_the_event(name, stream, other):
    """Here nanoarrow waits itself, where it reads the last offset."""
    with driver.gate(stream) as gate:
        with go.on_device(name, "nulls", stream=stream) as made:
            array = c_device_array(made)
        assert not driver.is_complete(nano.event(array))
        with go.opening(gate):
            back = go.copy_by_nanoarrow(array, other)
        assert go.difference(back, name, "nulls") == ""


def test_caller_waits_for_the_event(stream):
    with driver.gate(stream) as gate, go.on_device("int64", "valid", stream=stream) as made:
        array = c_device_array(made)
        assert not made.ready()
        with go.opening(gate):
            nano.wait(nano.resolve(nano.CUDA, 0), nano.sync_event(array))
        assert made.ready()
        del array


def test_event_behind_more_work(stream, other):
    """WithEvent: a program writes to the memory after Go did, and the consumer waits
    for that work too."""
    with go.on_device("int32", "valid") as made:
        made.wait_on(stream)
        with driver.gate(stream) as gate:
            first = c_device_array(made)
            at = first.array.buffers[1]
            driver.call("cuMemsetD32Async", driver.address(at), ctypes.c_uint(9), driver.size(3), driver.handle(stream))
            array = c_device_array(made.after(stream))
            assert not driver.is_complete(nano.event(array))
            assert nano.event(array) != nano.event(first)
            nano.wait(nano.resolve(nano.CUDA, 0), nano.sync_event(array), other)
            gate.open()
            assert nano.values(go.copy_by_nanoarrow(array, other)) == [9, 9, 9, 4, 5, 6, 7]
        del first, array


def test_memory_outlives_what_it_was_made_from(stream):
    """nanoarrow has the last reference, after Go let go of its own and collected."""
    with go.on_device("int64", "nulls") as made:
        array = c_device_array(made)
    golib.ext.free_memory()
    assert golib.stats()["exported_arrays"] == 1
    assert go.difference(go.copy_by_nanoarrow(array, stream), "int64", "nulls") == ""
    del array
    gc.collect()
    assert golib.stats()["exported_arrays"] == 0


@pytest.mark.simulator
def test_event_lives_as_long_as_the_array(stream):
    with go.on_device("int64", "valid") as made:
        array = c_device_array(made)
    go.settle()
    nano.wait(nano.resolve(nano.CUDA, 0), nano.sync_event(array))
    event = nano.event(array)
    assert driver.is_complete(event)
    del array
    go.settle()
    with pytest.raises(driver.Error, match="CUDA_ERROR_INVALID_HANDLE"):
        driver.is_complete(event)


def test_memory_is_kept_for_work_of_the_caller(stream):
    """UsedOn: Go frees it after the recorded work, without a wait of the caller."""
    target = cuda.pinned_array(7, "i8")
    target[:] = 0
    with driver.gate(stream):
        with go.on_device("int64", "valid") as made:
            made.wait_on(stream)
            at = go.Place(made).buffers[1]
            driver.copy_to_host(target, at, stream)
            made.used_on(stream)
        golib.ext.free_memory()
        assert (target == 0).all()
    assert target.tolist() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.machines(*go.SIZES_CAN_BE_READ)
@pytest.mark.parametrize(
    "name, variant, i, j, want",
    [
        ("int64", "valid", 2, 5, [3, 4, 5]),
        ("bool", "nulls", 1, 6, [None, True, True, False, True]),
        ("utf8", "nulls", 1, 3, [None, ""]),
        ("utf8", "nulls", 1, 2, [None]),
    ],
)
def test_slices(name, variant, i, j, want, stream):
    """Go cuts device memory without a copy: offsets that nanoarrow adds."""
    with go.on_device(name, variant) as made, made.slice(i, j) as part:
        array = c_device_array(part)
        assert (array.array.offset, array.array.length) == (i, j - i)
        assert nano.values(go.copy_by_nanoarrow(array, stream)) == want


def test_columns_of_a_batch(stream):
    with go.on_device("int64", "nulls", kind=golib.GoBatch) as made:
        with made.column(1) as column, made.select(1) as rest:
            array, batch = c_device_array(column), c_device_array(rest)
    assert go.difference(go.copy_by_nanoarrow(array, stream), "int64", "nulls") == ""
    assert batch.array.n_children == 1
    assert nano.values(go.copy_by_nanoarrow(batch, stream))[0] == {"b": 1}


@pytest.mark.parametrize("name", ["int64", "bool", "utf8", "list_struct", "dictionary_int8"])
@pytest.mark.parametrize("how", ["built", "copied"])
def test_page_locked_memory(name, how):
    """CUDA_HOST, which the host reads when the event is complete."""
    for variant in go.VARIANTS:
        if how == "built":
            made = golib.GoArray.make_pinned(name, variant)
        else:
            with golib.GoArray.make(name, variant) as host:
                made = host.copy_to(abi.CUDA_HOST)
        with made:
            array = c_device_array(made)
            assert (array.device_type, array.device_id) == (DeviceType.CUDA_HOST, 0)
            if nano.sync_event(array):
                nano.wait(nano.resolve(nano.CUDA_HOST, 0), nano.sync_event(array))
            on_host = nano.move(array, nano.resolve(nano.CPU, 0))
            assert go.difference(on_host, name, variant) == "", variant
            del array, on_host


@pytest.mark.simulator
def test_nobody_waits():
    """Neither Go for its copy, nor nanoarrow for an array that it only holds."""
    with golib.GoArray.make("int64", "valid") as host, simulator.counting() as counted:
        with host.copy_to(abi.CUDA) as made:
            array = c_device_array(made)
            assert counted().synchronisations == 0
            assert "cuStreamSynchronize" not in counted().calls
            del array


@pytest.mark.simulator
def test_stream_of_a_copy_is_needed_no_longer_than_the_copy():
    """WithStream borrows the stream until then, as documented."""
    with driver.stream() as stream:
        made = go.on_device("int64", "valid", stream=stream)
        made.wait()
    failed = simulator.report()["failed_calls"]
    made.release()
    go.settle()
    assert simulator.report()["failed_calls"] == failed
