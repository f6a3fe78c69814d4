"""Device streams with Go on one side: nanoarrow takes, array by array, the batches that
Go copies to the device; Go reads arrays of nanoarrow as a stream."""

import contextlib
import ctypes

import golib
import nanoarrow as na
import pytest
from golib import GoBatch
from gostream import GoStream, released, wait_until
from nanoarrow.device import DeviceType, c_device_array
from numba import cuda

import abi
import devicestreams
import driver
import go
import nano

pytestmark = pytest.mark.usefixtures("golang")

SOME = [*go.SOME_PLAIN[1:], *go.SOME_STRINGS]
WHOLE = ["valid", "nulls", "sliced"]


@contextlib.contextmanager
def on_device(name, variant, count=3, device=0, stream=0):
    """A GoStream of copies of a case on a GPU, which it makes when it is asked; it is
    one batch ahead."""
    with GoBatch.make(name, variant) as item, GoStream.of([item] * count, how="function") as source:
        with source.copy_to(abi.CUDA, device, stream) as copies:
            source.release()
            yield copies
        wait_until(nothing_is_read)


def nothing_is_read():
    """No stream of Go's is alive, and prefetched batches are gone."""
    stats = golib.stats()
    return stats["sources"] == stats["imported_streams"] == stats["exported_streams"] == 0


def made_on(stream, name, variant):
    """A device stream of three copies that nanoarrow makes on a CUDA stream."""
    return devicestreams.Made([go.copied_by_nanoarrow(name, variant, stream, kind=GoBatch) for _ in range(3)])


def all_released(made):
    go.settle()
    return all(item.releases == 1 for item in made.items)


# From Go to nanoarrow.


def arrives(name, stream, device=0):
    for variant in WHOLE:
        with on_device(name, variant, device=device) as there, there.exported() as exported:
            assert (exported.device_type, there.describe()["device"]) == (abi.CUDA, "cuda")
            arrays = devicestreams.arrays_of(exported)
        assert [(array.device_type, array.device_id) for array in arrays] == [(DeviceType.CUDA, device)] * 3
        while arrays:
            back = go.copy_by_nanoarrow(arrays.pop(), stream)
            assert go.difference(back, name, variant, GoBatch) == "", variant


@pytest.mark.machines(*go.SIZES_CAN_BE_READ)
@pytest.mark.parametrize("name", SOME)
def test_arrives(name, stream):
    arrives(name, stream)


@pytest.mark.machines("random")
@pytest.mark.parametrize("name", go.SOME_PLAIN[1:])
def test_arrives_out_of_order(name, stream):
    arrives(name, stream)


@pytest.mark.two_devices
@pytest.mark.parametrize("name", ["int64", "utf8"])
def test_arrives_from_the_second_device(name):
    with cuda.gpus[1], driver.stream() as other:
        arrives(name, other, device=1)


def test_consumer_waits_for_each_event(stream, other):
    """Go does not wait: the batches arrive before their memory is filled."""
    with driver.gate(stream) as gate:
        with on_device("int64", "nulls", stream=stream) as there, there.exported() as exported:
            arrays = devicestreams.arrays_of(exported)
        assert [driver.is_complete(nano.event(array)) for array in arrays] == [False] * 3
        gpu = nano.resolve(nano.CUDA, 0)
        copies = []
        for array in arrays:
            nano.wait(gpu, nano.sync_event(array), other)
            copies.append(nano.copy(array, gpu, other))
        gate.open()
        for copy in copies:
            assert go.difference(go.copy_by_nanoarrow(copy, other), "int64", "nulls", GoBatch) == ""
        del array, arrays  # which `other` has read


@pytest.mark.parametrize("taken", range(5))
def test_stream_is_released_at_any_time(taken, stream):
    """Behind a closed gate: with copies under way, not delivered yet or kept by a
    consumer."""
    with driver.gate(stream):
        with on_device("utf8", "nulls", stream=stream) as there, there.exported() as exported:
            there.release()
            schema = devicestreams.Schema(exported)
            kept = [devicestreams.next_array(exported, schema) for _ in range(taken)]
            assert [array is not None for array in kept] == [n < 3 for n in range(taken)]
            assert golib.stats()["exported_streams"] == 1
        assert golib.stats()["exported_streams"] == 0
    for array in filter(None, kept):
        nano.wait(nano.resolve(nano.CUDA, 0), nano.sync_event(array), stream)
        assert array.array.length == 7
    driver.call("cuStreamSynchronize", driver.handle(stream))
    assert golib.stats()["exported_arrays"] == min(taken, 3)


def test_arrays_outlive_their_stream(stream):
    with on_device("int64", "nulls") as there, there.exported() as exported:
        arrays = devicestreams.arrays_of(exported)
    golib.ext.free_memory()
    for array in arrays:
        assert go.difference(go.copy_by_nanoarrow(array, stream), "int64", "nulls", GoBatch) == ""
    del array


# From nanoarrow to Go.


def taken_by_go(made):
    with GoStream.take(made.address) as there:
        assert not abi.is_filled(made.struct), "the consumer moves the stream"
        assert there.describe()["device"] == "cuda"
        yield from there


@pytest.mark.parametrize("name", SOME)
def test_taken(name, stream):
    for variant in WHOLE:
        made = made_on(stream, name, variant)
        with released(taken_by_go(made)) as items:
            assert made.calls == ["get_schema"] + ["get_next"] * 4 + ["release"]
            assert [item.describe()["device"] for item in items] == ["cuda:0"] * 3
            for item in items:
                assert go.device_difference(item, name, variant) == "", variant
            assert [item.releases for item in made.items] == [0] * 3
        assert all_released(made)


@pytest.mark.two_devices
def test_taken_from_both_devices(stream):
    """A stream has a device type; each array names its device."""
    with cuda.gpus[1], driver.stream() as other:
        second = go.copied_by_nanoarrow("utf8", "nulls", other, device=1, kind=GoBatch)
        second.wait()
    made = devicestreams.Made([go.copied_by_nanoarrow("utf8", "nulls", stream, kind=GoBatch), second])
    with released(taken_by_go(made)) as items:
        assert [item.describe()["device"] for item in items] == ["cuda:0", "cuda:1"]
        for item in items:
            assert go.device_difference(item, "utf8", "nulls") == ""
            item.wait()
    assert all_released(made)


@pytest.mark.parametrize("name", ["int64", "utf8", "list_struct"])
def test_read_by_arrow_go(name, stream):
    """HostReader copies each batch to the host, after its event."""
    with driver.gate(stream) as gate:
        made = made_on(stream, name, "nulls")
        with GoStream.take(made.address) as there, there.through_arrow_go() as host:
            there.release()
            with go.opening(gate), released(host) as items, GoBatch.make(name, "nulls") as want:
                assert [item.describe()["device"] for item in items] == ["cpu"] * 3
                assert [item.difference(want) for item in items] == [""] * 3
    assert made.releases == 1
    assert all_released(made)


def test_taken_before_it_is_there(stream):
    with driver.gate(stream) as gate:
        made = made_on(stream, "int64", "nulls")
        with released(taken_by_go(made)) as items:
            assert [item.ready() for item in items] == [False] * 3
            with go.opening(gate):
                for item in items:
                    assert go.device_difference(item, "int64", "nulls") == ""
            assert [item.ready() for item in items] == [True] * 3
    assert all_released(made)


def test_handed_on_by_go(stream):
    """The memory, the device and the events that come back are those that left."""
    made = made_on(stream, "utf8", "nulls")
    left = [go.Place(item) for item in made.items]
    with GoStream.take(made.address) as there, there.exported() as exported:
        there.release()
        arrays = devicestreams.arrays_of(exported)
        assert made.releases == 0
    assert made.releases == 1
    assert [go.Place(array) for array in arrays] == left
    for array in arrays:
        nano.wait(nano.resolve(nano.CUDA, 0), nano.sync_event(array))
    del array, arrays
    assert all_released(made)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("taken", range(5))
def test_go_releases_at_any_time(prefetch, taken, stream):
    made = made_on(stream, "int64", "valid")
    driver.call("cuStreamSynchronize", driver.handle(stream))  # see test_nanoarrow_waits.py
    with GoStream.take(made.address, prefetch=prefetch) as there:
        with released(filter(None, [there.next() for _ in range(taken)])) as items:
            there.release()
            wait_until(lambda: made.releases == 1)
            assert len(items) == min(taken, 3)
            for item in items:
                assert go.device_difference(item, "int64", "valid") == ""
    wait_until(lambda: golib.stats()["imported_arrays"] == 0)
    go.settle()
    asked = made.calls.count("get_next")
    assert [item.releases for item in made.items] == [1] * min(asked, 3) + [0] * (3 - min(asked, 3))


def test_copied_on_by_go(stream, other):
    """From the device to the device, on a stream of the caller's, and a batch ahead."""
    made = made_on(stream, "list_struct", "nulls")
    with GoStream.take(made.address) as there, there.copy_to(abi.CUDA, 0, other) as copies:
        there.release()
        with released(copies) as items:
            for item in items:
                assert go.device_difference(item, "list_struct", "nulls") == ""
    wait_until(nothing_is_read)
    assert made.releases == 1
    assert all_released(made)


def test_page_locked_stream(stream):
    made = devicestreams.Made(
        [go.copied_by_nanoarrow("utf8", "nulls", stream, abi.CUDA_HOST, kind=GoBatch) for _ in range(2)], device_type=abi.CUDA_HOST
    )
    with GoStream.take(made.address) as there, GoBatch.make("utf8", "nulls") as want, released(there) as items:
        assert there.describe()["device"] == "cuda_host"
        assert [item.difference(want) for item in items] == [""] * 2
        with GoStream.of(items) as again, again.exported(for_host=True) as exported:
            assert exported.device_type == abi.CPU
            for array in devicestreams.arrays_of(exported):
                assert go.difference(array, "utf8", "nulls", GoBatch) == ""
            del array
    assert all_released(made)


# The device stream of nanoarrow's C library: a plain stream, whose arrays are said to be on a device. It makes them so one by one,
# without events.


@pytest.mark.machines("in_order")
@pytest.mark.parametrize("name", go.HANDED_ON)
def test_plain_stream_of_nanoarrow(name):
    for variant in go.VARIANTS:
        with GoBatch.make(name, variant) as made:
            stream = nano.device_stream([c_device_array(made)] * 2, nano.resolve(nano.CPU, 0))
            with abi.owned(stream), GoStream.take(ctypes.addressof(stream), full_validation=True) as there:
                assert there.describe()["device"] == "cpu"
                with released(there) as items:
                    assert [item.difference(made) for item in items] == ["", ""], variant


@pytest.mark.machines("in_order")
def test_plain_stream_of_arrays_of_nanoarrow():
    sources = [c_device_array(na.c_array(values, na.int64())) for values in ([1, None], [], [3])]
    stream = nano.device_stream(sources, nano.resolve(nano.CPU, 0))
    with GoStream.take(ctypes.addressof(stream), of_arrays=True) as there, released(there) as items:
        assert [item.values() for item in items] == [[1, None], [], [3]]
        del sources


@pytest.mark.parametrize("name", SOME)
def test_device_stream_of_nanoarrow(name, stream):
    """It has no events, so its arrays must be complete; and no end, see test_nanoarrow_waits.py."""
    handed = [go.copied_by_nanoarrow(name, "nulls", stream, kind=GoBatch) for _ in range(2)]
    for item in handed:
        item.wait()
    given = nano.device_stream(handed, nano.resolve(nano.CUDA, 0))
    with GoStream.take(ctypes.addressof(given)) as there, released([there.next(), there.next()]) as items:
        there.release()
        for item in items:
            assert item.describe()["device"] == "cuda:0"
            assert item.ready()
            assert go.device_difference(item, name, "nulls") == ""
    go.settle()
