"""Columns that Go put on the device, read and written by Numba in place, and arrays of
Numba that Go takes: over the CUDA array interface and the memory's address."""

import ctypes

import golib
import numpy as np
import pytest
from nanoarrow.c_schema import c_schema
from nanoarrow.device import c_device_array
from numba import cuda

import abi
import capsules
import driver
import go
import nano
from helpers import pinned

pytestmark = pytest.mark.usefixtures("golang")


class Column:
    """The values of an array on a device, as other libraries take them. Readers wait
    for a stream, which was made to wait for the event of the array."""

    def __init__(self, made, dtype, stream):
        place = go.Place(made)
        made.wait_on(stream)
        length, offset = place.shape
        dtype = np.dtype(dtype)
        self.__cuda_array_interface__ = {
            "shape": (length,),
            "typestr": dtype.str,
            "data": (place.buffers[1] + offset * dtype.itemsize, False),
            "version": 3,
            "stream": stream,
        }


def values(column):
    """As Numba reads them, on the stream of the interface."""
    array = cuda.as_cuda_array(column)
    got = array.copy_to_host()
    array.stream.synchronize()
    return got


TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]


@pytest.mark.parametrize("name", TYPES)
def test_numba_reads_what_go_made(name, stream):
    with go.on_device(name, "valid") as made, made.slice(2, 6) as part:
        np.testing.assert_array_equal(values(Column(made, name, stream)), np.arange(1, 8, dtype=name))
        np.testing.assert_array_equal(values(Column(part, name, stream)), np.arange(3, 7, dtype=name))


def test_numba_waits_for_the_event(stream, other):
    """Numba waits for the stream of the interface, before it answers with an array."""
    with driver.gate(stream) as gate, go.on_device("int64", "valid", stream=stream) as made:
        assert not made.ready()
        with go.opening(gate):
            array = cuda.as_cuda_array(Column(made, "int64", other))
        assert made.ready()
        got = array.copy_to_host()
        array.stream.synchronize()
    np.testing.assert_array_equal(got, np.arange(1, 8))


def test_numba_does_not_wait_when_told_not_to(stream, other):
    """Its stream does."""
    target = pinned(np.zeros(7, "i8"))
    with driver.gate(stream) as gate, go.on_device("int64", "valid", stream=stream) as made:
        array = cuda.as_cuda_array(Column(made, "int64", other), sync=False)
        array.copy_to_host(target, stream=cuda.external_stream(other))
        made.used_on(other)
        assert not made.ready() and (target == 0).all()
        gate.open()
        driver.call("cuStreamSynchronize", driver.handle(other))
    np.testing.assert_array_equal(target, np.arange(1, 8))


def test_go_reads_what_numba_wrote(stream):
    """And a consumer of the export waits for Numba."""
    source = pinned(np.arange(70, 77))
    with go.on_device("int64", "valid") as made:
        array = cuda.as_cuda_array(Column(made, "int64", stream))
        with driver.gate(stream) as gate:
            array.copy_to_device(source, stream=cuda.external_stream(stream))
            with golib.GoArray.from_arrow(made.after(stream)) as taken:
                assert made.ready() and not taken.ready()
                with go.opening(gate), taken.copy_to_host() as host:
                    assert host.values() == list(range(70, 77))


class Numbers:
    """An array of Numba, for one consumer, with an event behind the work on a stream."""

    def __init__(self, values, stream):
        self.array = cuda.device_array(len(values), values.dtype)
        self._source = pinned(values)
        self._stream = stream
        self._event = ctypes.c_void_p(driver.ask(driver.handle, "cuEventCreate", driver.DISABLE_TIMING))

    def write(self):
        self.array.copy_to_device(self._source, stream=cuda.external_stream(self._stream))
        driver.record(self._event.value, self._stream)

    def __arrow_c_device_array__(self, requested_schema=None):
        tree = capsules.Tree(len(self.array), None, self.array.device_ctypes_pointer.value, keep=self)
        struct = capsules.export(tree, abi.CUDA, 0, ctypes.addressof(self._event))
        return capsules.Produced(c_schema(nano.nanoarrow.int64()), struct).__arrow_c_device_array__()

    def close(self):
        driver.call("cuEventDestroy_v2", self._event)


@pytest.fixture
def numbers(stream):
    made = Numbers(np.arange(1000), stream)
    yield made
    made.close()


def test_go_takes_what_numba_made(numbers):
    numbers.write()
    with golib.GoArray.from_arrow(numbers) as taken, taken.slice(10, 20) as part:
        assert go.Place(taken).buffers == [None, numbers.array.device_ctypes_pointer.value]
        with part.copy_to_host() as host:
            assert host.values() == list(range(10, 20))
        assert capsules.exported() == 1
    go.settle()
    assert capsules.exported() == 0


def test_go_waits_for_numba(numbers, stream):
    with driver.gate(stream) as gate:
        numbers.write()
        with golib.GoArray.from_arrow(numbers) as taken:
            assert not taken.ready()
            with go.opening(gate), taken.copy_to_host() as host:
                assert host.values() == list(range(1000))


def test_numba_to_go_to_nanoarrow(numbers, stream, other):
    """Each hands on the same memory and the same event, and the last one waits."""
    with driver.gate(stream) as gate:
        numbers.write()
        with golib.GoArray.from_arrow(numbers) as taken:
            array = c_device_array(taken)
        assert array.array.buffers[1] == numbers.array.device_ctypes_pointer.value
        assert nano.event(array) == numbers._event.value
        with go.opening(gate):
            assert nano.values(go.copy_by_nanoarrow(array, other)) == list(range(1000))
        del array
    go.settle()
    assert capsules.exported() == 0


def test_numba_reads_page_locked_memory_of_go():
    """The device reads it where the host wrote it."""
    with golib.GoArray.make_pinned("int64", "valid") as made:
        source = go.Place(made).buffers[1]
        target = cuda.device_array(7, "i8")
        driver.call(
            "cuMemcpyHtoDAsync_v2",
            driver.address(target.device_ctypes_pointer.value),
            driver.handle(source),
            driver.size(56),
            driver.handle(2),
        )
        driver.call("cuStreamSynchronize", driver.handle(2))
        np.testing.assert_array_equal(target.copy_to_host(), np.arange(1, 8))
        assert driver.pointer(driver.MEMORY_TYPE, source, ctypes.c_uint) == driver.HOST
