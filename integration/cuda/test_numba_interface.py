"""The CUDA array interface, with Numba on either side of it."""

import numpy as np
import pytest
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError

import driver
from helpers import pinned


class Foreign:
    """An array of another library: memory from the driver, and the interface."""

    def __init__(self, at, shape, typestr="<i8", **more):
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (at, False),
            "version": 3,
            **more,
        }


@pytest.fixture
def memory():
    """8000 bytes of device memory that Numba did not allocate: 0, 1, ... 999."""
    cuda.current_context()
    with driver.memory(8000) as at:
        cuda.as_cuda_array(Foreign(at, (1000,))).copy_to_device(np.arange(1000))
        cuda.synchronize()
        yield at


def test_what_numba_exports():
    want = np.arange(60, dtype="f4").reshape(6, 10)
    on_device = cuda.to_device(want)
    interface = on_device.__cuda_array_interface__
    assert interface["shape"] == (6, 10)
    assert interface["typestr"] == "<f4"
    assert interface["data"] == (on_device.device_ctypes_pointer.value, False)
    assert interface["strides"] is None
    assert interface["stream"] is None
    assert interface["version"] == 3
    part = on_device[2:, 3:].__cuda_array_interface__
    assert part["strides"] == (40, 4)
    assert part["data"][0] == interface["data"][0] + 2 * 40 + 3 * 4


def test_numba_exports_its_stream(stream):
    assert cuda.device_array(10, stream=cuda.external_stream(stream)).__cuda_array_interface__["stream"] == stream
    assert cuda.device_array(10, stream=cuda.per_thread_default_stream()).__cuda_array_interface__["stream"] == 2


def test_foreign_memory(memory):
    array = cuda.as_cuda_array(Foreign(memory, (1000,)))
    assert array.device_ctypes_pointer.value == memory
    np.testing.assert_array_equal(array.copy_to_host(), np.arange(1000))


def test_foreign_memory_in_the_middle(memory):
    array = cuda.as_cuda_array(Foreign(memory + 80, (10, 10)))
    np.testing.assert_array_equal(array.copy_to_host(), np.arange(10, 110).reshape(10, 10))


def test_foreign_memory_with_strides(memory):
    array = cuda.as_cuda_array(Foreign(memory, (10, 5), strides=(80, 8)))
    np.testing.assert_array_equal(array[3].copy_to_host(), np.arange(30, 35))


def test_what_is_written_is_seen_by_the_owner(memory):
    cuda.as_cuda_array(Foreign(memory, (1000,)))[10:20].copy_to_device(np.full(10, -1))
    got = np.empty(1000, "i8")
    driver.call("cuMemcpyDtoH_v2", driver.handle(got.ctypes.data), driver.address(memory), driver.size(8000))
    np.testing.assert_array_equal(got[[9, 10, 19, 20]], [9, -1, -1, 20])


def test_owner_lives_as_long_as_the_view():
    import weakref

    array = cuda.to_device(np.arange(100))
    foreign = Foreign(array.device_ctypes_pointer.value, (100,))
    foreign.array = array
    alive = weakref.ref(foreign)
    view = cuda.as_cuda_array(foreign)[10:20]
    del array, foreign
    cuda.current_context().memory_manager.deallocations.clear()
    assert alive() is not None
    np.testing.assert_array_equal(view.copy_to_host(), np.arange(10, 20))
    del view
    assert alive() is None


def test_import_waits_for_the_stream_of_the_producer(memory, stream):
    """The producer's work is on its stream still, when it hands the array over."""
    source = pinned(np.full(1000, 42))
    on_device = cuda.as_cuda_array(Foreign(memory, (1000,)))
    seen = []
    with driver.gate(stream) as gate:
        on_device.copy_to_device(source, stream=cuda.external_stream(stream))
        after = cuda.event()
        after.record(cuda.external_stream(stream))
        lazy = cuda.as_cuda_array(Foreign(memory, (1000,), stream=stream), sync=False)
        seen.append(after.query())
        gate.open()
        eager = cuda.as_cuda_array(Foreign(memory, (1000,), stream=stream))
        seen.append(after.query())
    assert seen == [False, True]
    assert int(lazy.stream) == int(eager.stream) == stream
    got = eager.copy_to_host()  # on that stream, as it is the array's now
    eager.stream.synchronize()
    assert (got == 42).all()


@pytest.mark.parametrize("stream", [1, 2], ids=["legacy", "per_thread"])
def test_import_waits_for_default_streams(memory, stream):
    source = pinned(np.full(1000, 42))
    on_device = cuda.as_cuda_array(Foreign(memory, (1000,)))
    on_device.copy_to_device(source, stream=cuda.external_stream(stream))
    event = cuda.event()
    event.record(cuda.external_stream(stream))
    array = cuda.as_cuda_array(Foreign(memory, (1000,), stream=stream))
    assert event.query()
    got = array.copy_to_host()
    array.stream.synchronize()
    assert (got == 42).all()


def test_device_arrays_are_taken_as_they_are(memory):
    foreign = Foreign(memory, (1000,))
    assert cuda.to_device(foreign).device_ctypes_pointer.value == memory
    array = cuda.to_device(np.arange(10))
    assert cuda.to_device(array) is array
    again = cuda.as_cuda_array(array)
    assert again.device_ctypes_pointer.value == array.device_ctypes_pointer.value


def test_empty_array():
    array = cuda.as_cuda_array(Foreign(0, (0,)))
    assert array.copy_to_host().size == 0
    assert cuda.device_array(0).__cuda_array_interface__["data"][0] == 0


def test_masks_are_refused(memory):
    with pytest.raises(NotImplementedError, match="Masked"):
        cuda.as_cuda_array(Foreign(memory, (10,), mask=Foreign(memory, (10,), "|b1")))


def test_host_memory_is_refused():
    """Numba asks the driver for the address that the device uses, and there is none."""
    host = np.arange(10)
    with pytest.raises(CudaAPIError, match="CUDA_ERROR_INVALID_VALUE"):
        cuda.as_cuda_array(Foreign(host.ctypes.data, (10,)))


def test_other_objects_are_no_device_arrays():
    assert not cuda.is_cuda_array(np.arange(10))
    with pytest.raises(TypeError, match="array interface"):
        cuda.as_cuda_array(np.arange(10))


@pytest.mark.parametrize("typestr", ["|b1", "|i1", "<u2", "<f2", "<f4", "<c8", "<M8[us]"])
def test_types(typestr):
    want = np.arange(48, dtype="u1").view(typestr) if typestr != "|b1" else np.arange(48) % 3 == 0
    array = cuda.to_device(want)
    again = cuda.as_cuda_array(Foreign(array.device_ctypes_pointer.value, array.shape, typestr))
    assert again.dtype == want.dtype
    assert again.copy_to_host().tobytes() == want.tobytes()
