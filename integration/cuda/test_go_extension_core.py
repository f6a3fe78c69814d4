"""Results of Go functions in Python as cuda-core views them, and memory of cuda-core as their arguments:
by DLPack and by the CUDA Array Interface."""

import numpy as np
import pytest
from cuda.core import ManagedMemoryResource, PinnedMemoryResource
from cuda.core.utils import StridedMemoryView
from extension import ext

import abi
import cudacore
import driver
from go import copied as on_device
from go import numbers

pytestmark = pytest.mark.usefixtures("golang")

VIEWS = {
    "dlpack": StridedMemoryView.from_dlpack,
    "cuda_array": StridedMemoryView.from_cuda_array_interface,
    "any": StridedMemoryView.from_any_interface,
}


@pytest.fixture
def device(machine):
    return cudacore.use_device(0)


@pytest.fixture
def theirs(device):
    """A stream of cuda-core."""
    with cudacore.stream(device) as made:
        yield made


@pytest.fixture(params=VIEWS)
def view(request):
    return VIEWS[request.param]


def copy(stream, view):
    """A copy in page-locked memory, which is there when the stream has done it."""
    _, got = cudacore.pinned(np.zeros(np.prod(view.shape), view.dtype))
    driver.copy_to_host(got, view.ptr, int(stream.handle))
    return got.reshape(view.shape)


@pytest.mark.parametrize("name", ["int8", "uint16", "int32", "uint64", "float16", "float32", "float64"])
def test_core_views_arrays_of_go(theirs, view, name):
    want = np.arange(100).astype(name)
    array = on_device(want)
    for each, values in ((array, want), (array[10:20], want[10:20])):
        made = view(each, stream_ptr=int(theirs.handle))
        assert made.readonly and made.is_device_accessible and made.device_id == 0
        assert (made.shape, made.dtype) == (values.shape, values.dtype)
        got = copy(theirs, made)
        theirs.sync()
        np.testing.assert_array_equal(got, values)


def test_core_views_matrices(theirs, view):
    want = np.arange(24, dtype="f4").reshape(4, 2, 3)
    made = view(on_device(want), stream_ptr=int(theirs.handle))
    assert made.shape == (4, 2, 3)
    got = copy(theirs, made)
    theirs.sync()
    np.testing.assert_array_equal(got, want)


def test_core_waits_for_go(theirs, stream, view):
    """Go's copy is held back on a stream; the view orders the stream of cuda-core behind it."""
    host = ext.echo_array(np.arange(1, 8))
    with driver.gate(stream) as gate:
        array = ext.copy_to(host, abi.CUDA, 0, stream)
        made = view(array, stream_ptr=int(theirs.handle))
        got = copy(theirs, made)
        done = theirs.record()
        cudacore.stays_pending(done)
        assert not ext.ready(array)
        gate.open()
        done.sync()
        np.testing.assert_array_equal(got, np.arange(1, 8))


def test_core_does_not_wait_if_it_opts_out(theirs, stream):
    """As it does with stream_ptr=-1, in DLPack: its stream is done before Go's copy."""
    host = ext.echo_array(np.arange(1, 8))
    with driver.gate(stream):
        array = ext.copy_to(host, abi.CUDA, 0, stream)
        made = StridedMemoryView.from_dlpack(array, stream_ptr=-1)
        theirs.record().sync()
        assert made.shape == (7,) and not ext.ready(array)


def test_core_keeps_the_array(theirs, view):
    made = view(on_device(np.arange(10)), stream_ptr=int(theirs.handle))
    got = copy(theirs, made)
    theirs.sync()
    np.testing.assert_array_equal(got, np.arange(10))


def test_a_view_by_dlpack_outlives_the_array(theirs):
    """Its capsule holds the memory, so the array may be closed."""
    array = on_device(np.arange(10))
    made = StridedMemoryView.from_dlpack(array, stream_ptr=int(theirs.handle))
    array.close()
    got = copy(theirs, made)
    theirs.sync()
    np.testing.assert_array_equal(got, np.arange(10))


class Written:
    """A buffer of cuda-core whose contents are written on a stream."""

    def __init__(self, resource, stream, values):
        self._source, _ = cudacore.pinned(values.reshape(-1))
        self._stream = stream
        self.buffer = resource.allocate(values.nbytes, stream=stream)

    def write(self):
        self.enqueue().sync()

    def enqueue(self):
        """The event behind the write."""
        self.buffer.copy_from(self._source, stream=self._stream)
        return self._stream.record()

    def close(self):
        self.buffer.close(self._stream)


@pytest.mark.parametrize("resource", [None, ManagedMemoryResource, PinnedMemoryResource], ids=["device", "managed", "pinned"])
def test_go_takes_buffers_of_core(device, theirs, resource):
    """They are tensors of bytes."""
    want = np.arange(100, dtype="i8")
    made = Written(resource() if resource else device.memory_resource, theirs, want)
    made.write()
    taken = ext.echo_array(made.buffer)
    assert len(taken) == want.nbytes
    np.testing.assert_array_equal(numbers(taken).view("i8"), want)
    del taken
    made.close()


def test_core_leaves_the_wait_to_the_caller(device, theirs):
    """Its __dlpack__ ignores the stream that Go names, so the array seems to be ready before the write."""
    made = Written(device.memory_resource, theirs, np.arange(100))
    with driver.gate(int(theirs.handle)):
        done = made.enqueue()
        taken = ext.echo_array(made.buffer)
        taken.synchronize()
        assert ext.ready(taken) and not done.is_done
    del taken
    made.close()


def test_go_takes_views_of_core(device, theirs):
    """With their shapes and types."""
    want = np.arange(24, dtype="f4").reshape(4, 6)
    made = Written(device.memory_resource, theirs, want)
    made.write()
    view = StridedMemoryView.from_buffer(made.buffer, (4, 6), dtype=np.dtype("f4"))
    taken = ext.echo_array(view)
    assert (taken.device, len(taken)) == ("cuda:0", 4)
    again = StridedMemoryView.from_dlpack(taken, stream_ptr=int(theirs.handle))
    assert (again.ptr, again.shape) == (int(made.buffer.handle), (4, 6))
    got = copy(theirs, again)
    theirs.sync()
    np.testing.assert_array_equal(got, want)
    del taken, again, view
    made.close()


@pytest.mark.two_devices
def test_on_the_second_device(machine, view):
    array = on_device(np.arange(10), device=1)
    with cudacore.stream(cudacore.use_device(1)) as theirs:
        made = view(array, stream_ptr=int(theirs.handle))
        assert made.device_id == 1
        got = copy(theirs, made)
        theirs.sync()
    np.testing.assert_array_equal(got, np.arange(10))
