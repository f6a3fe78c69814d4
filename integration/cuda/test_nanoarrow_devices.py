"""nanoarrow's devices, and arrays on them in its Python package."""

import re

import nanoarrow as na
import numpy as np
import pytest
from nanoarrow.device import DeviceType, c_device_array, resolve
from numba import cuda

import driver
import nano
import simulator
from helpers import pinned


@pytest.fixture
def on_device(stream):
    """0, 1, ... 999 on the device, where the copy is done."""
    source = nano.array(np.arange(1000))
    array = nano.copy(source, nano.resolve(nano.CUDA, 0), stream)
    driver.call("cuStreamSynchronize", driver.handle(stream))
    return array


class Interface:
    """A buffer of nanoarrow, for Numba."""

    def __init__(self, view, stream=None):
        self.view = view  # keeps the memory
        self.__cuda_array_interface__ = {
            "shape": (len(view),),
            "typestr": np.dtype(view.format).str,
            "data": (view._addr(), True),
            "version": 3,
            "stream": stream,
        }


@pytest.mark.parametrize("type", [DeviceType.CUDA, DeviceType.CUDA_HOST])
def test_devices_are_found(type):
    device = resolve(type, 0)
    assert (device.device_type, device.device_id) == (type, 0)
    assert f"{type.name} <{type.value}>" in repr(device)
    assert device == resolve(type, 0)
    assert device != na.device.cpu()


def test_as_many_devices_as_the_driver_has():
    for gpu in cuda.gpus:
        assert resolve(DeviceType.CUDA, gpu.id).device_id == gpu.id
    for id in len(cuda.gpus), -1:
        with pytest.raises(ValueError, match="Device not found"):
            resolve(DeviceType.CUDA, id)


@pytest.mark.parametrize("type", [DeviceType.ROCM, DeviceType.CUDA_MANAGED])
def test_other_types_are_not_found(type):
    with pytest.raises(ValueError, match="Device not found"):
        resolve(type, 0)


@pytest.mark.simulator
@pytest.mark.program
def test_no_devices(run_program):
    def program():
        from nanoarrow.device import DeviceType

        import nano

        try:
            nano.nanoarrow.device.resolve(DeviceType.CUDA, 0)
        except ValueError as e:
            print(e)

    assert run_program(program, "devices=0").check().output == "Device not found for type 2/0\n"


def test_array_on_a_device_is_described(on_device):
    assert on_device.device_type == DeviceType.CUDA
    assert on_device.device_id == 0
    assert on_device.schema.format == "l"
    assert len(on_device.array) == 1000
    assert re.search(r"device_type: CUDA <2>", repr(on_device))
    view = on_device.view()
    assert (len(view), view.null_count) == (1000, 0)
    assert view.buffer(1).device == resolve(DeviceType.CUDA, 0)
    assert view.buffer(1).size_bytes == 8000


def test_array_on_a_device_is_not_read_on_the_host(on_device):
    """By nothing in the package: the memory would fault."""
    view = on_device.view().buffer(1)
    with pytest.raises(RuntimeError, match="not a CPU buffer"):
        memoryview(view)
    with pytest.raises(RuntimeError, match="not a CPU buffer"):
        view[0]
    with pytest.raises(ValueError, match="non-CPU"):
        on_device.array.__arrow_c_array__()
    with pytest.raises(ValueError, match="non-CPU"):
        na.Array(on_device.array, device=resolve(DeviceType.CUDA, 0)).to_pylist()


@pytest.mark.simulator
def test_describing_an_array_asks_the_driver_for_nothing(on_device):
    with simulator.counting() as counted:
        for _ in range(100):
            view = c_device_array(on_device).view()
            assert (len(view), view.n_buffers, view.buffer(1).size_bytes) == (1000, 2, 8000)
            on_device.__arrow_c_device_array__()
    assert set(counted().calls) <= {"cuDeviceGetCount"}


def test_numba_reads_the_memory_of_nanoarrow(on_device):
    array = cuda.as_cuda_array(Interface(on_device.view().buffer(1)))
    np.testing.assert_array_equal(array.copy_to_host(), np.arange(1000))
    part = array[10:20]
    del on_device, array
    np.testing.assert_array_equal(part.copy_to_host(), np.arange(10, 20))


def test_numba_waits_for_nanoarrow(stream):
    """nanoarrow has an event, the CUDA array interface a stream: so a stream waits
    for the event, and Numba for that stream."""
    source = nano.array(pinned(np.arange(1000)))
    with driver.stream() as other, driver.gate(stream) as gate:
        array = nano.copy(source, nano.resolve(nano.CUDA, 0), stream)
        nano.wait(nano.resolve(nano.CUDA, 0), nano.sync_event(array), other)
        lazy = cuda.as_cuda_array(Interface(array.view().buffer(1), other), sync=False)
        assert not driver.is_complete(nano.event(array))
        gate.open()
        view = cuda.as_cuda_array(Interface(array.view().buffer(1), other))
        assert driver.is_complete(nano.event(array))
        got = view.copy_to_host(), lazy.copy_to_host()
        cuda.synchronize()
        for values in got:
            np.testing.assert_array_equal(values, np.arange(1000))


class Tensor:
    """A buffer of nanoarrow, without all but DLPack."""

    def __init__(self, view):
        self._view = view

    def __dlpack__(self, stream=None):
        # None is the legacy default stream in DLPack, and a TypeError in nanoarrow.
        return self._view.__dlpack__(stream=1 if stream is None else stream)

    def __dlpack_device__(self):
        return self._view.__dlpack_device__()


def test_dlpack(on_device):
    """Between nanoarrow and itself, as no other package here speaks it on a device."""
    view = on_device.view().buffer(1)
    assert view.__dlpack_device__() == (2, 0)
    array = c_device_array(Tensor(view))
    assert (array.device_type, array.device_id) == (DeviceType.CUDA, 0)
    assert array.array.buffers == (0, view._addr())
    del on_device, view
    with driver.stream() as stream:
        back = nano.copy(array, nano.resolve(nano.CPU, 0), stream)
        driver.call("cuStreamSynchronize", driver.handle(stream))
    assert nano.values(back) == list(range(1000))


def test_dlpack_makes_the_stream_of_the_consumer_wait(stream):
    source = nano.array(pinned(np.arange(1000)))
    target = pinned(np.zeros(1000, "i8"))
    with driver.stream() as other, driver.gate(stream) as gate:
        array = nano.copy(source, nano.resolve(nano.CUDA, 0), stream)
        view = array.view().buffer(1)
        capsule = view.__dlpack__(stream=other)
        memory = cuda.as_cuda_array(Interface(view, other), sync=False)
        memory.copy_to_host(target, stream=cuda.external_stream(other))
        assert (target == 0).all()
        gate.open()
        driver.call("cuStreamSynchronize", driver.handle(other))
    np.testing.assert_array_equal(target, np.arange(1000))
    del capsule


@pytest.mark.parametrize("stream", [1, 2], ids=["legacy", "per_thread"])
def test_dlpack_with_default_streams(on_device, stream):
    capsule = on_device.view().buffer(1).__dlpack__(stream=stream)
    assert "dltensor" in repr(capsule)


def test_struct_of_columns_on_the_device(on_device, stream):
    """set_child waits for the events of the columns: the struct has none."""
    type = na.struct({"a": na.int64(), "b": na.int64()})
    source = nano.array(pinned(np.arange(1000)))
    second = nano.copy(source, nano.resolve(nano.CUDA, 0), stream)
    batch = na.c_array_from_buffers(
        type, 1000, [None], null_count=0, children=[on_device.array, second.array], device=resolve(DeviceType.CUDA, 0)
    )
    assert driver.is_complete(nano.event(second))
    assert batch.device_type == DeviceType.CUDA
    assert nano.sync_event(batch) is None
    back = nano.copy(batch, nano.resolve(nano.CPU, 0), stream)
    driver.call("cuStreamSynchronize", driver.handle(stream))
    assert nano.values(back) == [{"a": i, "b": i} for i in range(1000)]


def test_columns_of_the_host_are_refused_on_the_device():
    type, on_host = na.struct({"a": na.int64()}), na.c_array([1, 2, 3], na.int64())
    with pytest.raises(ValueError, match="not identical"):
        na.c_array_from_buffers(type, 3, [None], children=[on_host], device=resolve(DeviceType.CUDA, 0))
