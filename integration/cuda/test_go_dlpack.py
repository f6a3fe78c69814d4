"""Arrays of Go as cuda-core views them, by DLPack and by the CUDA array interface, and memory of cuda-core that Go takes."""

import godlpack
import numpy as np
import pytest
from cuda.core import ManagedMemoryResource, PinnedMemoryResource
from cuda.core.utils import StridedMemoryView
from extension import ext

import abi
import cudacore
import driver
import go
from go import copied, numbers
from helpers import stays_pending

pytestmark = pytest.mark.usefixtures("golang")


class Legacy:
    """An array as a producer from before DLPack 1 gives it, which cannot say that it is read-only."""

    def __init__(self, array):
        self._array = array

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __dlpack__(self, *, stream=None, **_):
        return self._array.__dlpack__(stream=stream)


VIEWS = {
    "dlpack": StridedMemoryView.from_dlpack,
    "legacy": lambda array, stream_ptr: StridedMemoryView.from_dlpack(Legacy(array), stream_ptr=stream_ptr),
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


MATRIX = np.arange(24, dtype="f4").reshape(4, 2, 3)
ARRAYS = [np.arange(100).astype(name) for name in ("int8", "uint16", "int32", "uint64", "float16", "float32", "float64")] + [MATRIX]


@pytest.mark.machines("delayed")
@pytest.mark.parametrize("want", ARRAYS, ids=lambda array: f"{array.dtype}-{array.ndim}")
def test_core_views_arrays_of_go(theirs, view, want):
    array = copied(want)
    for each, values in ((array, want), (array[1:3], want[1:3])):
        made = view(each, stream_ptr=int(theirs.handle))
        assert made.readonly == (view is not VIEWS["legacy"])
        assert made.is_device_accessible and made.device_id == 0
        assert (made.shape, made.dtype) == (values.shape, values.dtype)
        got = copy(theirs, made)
        theirs.sync()
        np.testing.assert_array_equal(got, values)


def test_core_waits_for_go(theirs, stream, view):
    """Go's copy is held back on a stream; the view orders the stream of cuda-core behind it."""
    host = ext.echo_array(np.arange(1, 8))
    with driver.gate(stream) as gate:
        array = ext.copy_to(host, abi.CUDA, 0, stream)
        made = view(array, stream_ptr=int(theirs.handle))
        got = copy(theirs, made)
        done = theirs.record()
        stays_pending(lambda: done.is_done)
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
    made = view(copied(np.arange(10)), stream_ptr=int(theirs.handle))
    got = copy(theirs, made)
    theirs.sync()
    np.testing.assert_array_equal(got, np.arange(10))


@pytest.mark.parametrize("name", ["dlpack", "legacy"])
def test_a_view_by_dlpack_outlives_the_array(theirs, name):
    """Its capsule holds the memory, so the array may be closed."""
    array = copied(np.arange(10))
    made = VIEWS[name](array, stream_ptr=int(theirs.handle))
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
        """The event behind the write."""
        self.buffer.copy_from(self._source, stream=self._stream)
        return self._stream.record()

    def close(self):
        self.buffer.close(self._stream)


@pytest.mark.parametrize("resource", [None, ManagedMemoryResource, PinnedMemoryResource], ids=["device", "managed", "pinned"])
@pytest.mark.parametrize("legacy", [False, True], ids=["versioned", "legacy"])
def test_go_takes_buffers_of_core(device, theirs, resource, legacy):
    """They are tensors of bytes, complete when the caller has waited for their stream."""
    want = np.arange(100, dtype="i8")
    made = Written(resource() if resource else device.memory_resource, theirs, want)
    made.write().sync()
    taken = godlpack.from_dlpack_legacy(made.buffer).object if legacy else ext.echo_array(made.buffer)
    assert len(taken) == want.nbytes
    assert go.Place(taken).buffers == [None, int(made.buffer.handle)]
    np.testing.assert_array_equal(numbers(taken).view("i8"), want)
    np.testing.assert_array_equal(numbers(taken[8:80]).view("i8"), want[1:10])
    del taken
    made.close()


def test_core_leaves_the_wait_to_the_caller(device, theirs):
    """Its __dlpack__ ignores the stream that Go names, so the array seems to be ready before the write."""
    made = Written(device.memory_resource, theirs, np.arange(100))
    with driver.gate(int(theirs.handle)):
        done = made.write()
        taken = ext.echo_array(made.buffer)
        taken.synchronize()
        assert ext.ready(taken) and not done.is_done
    del taken
    made.close()


def test_go_takes_views_of_core(device, theirs):
    """With their shapes and types."""
    want = np.arange(24, dtype="f4").reshape(4, 6)
    made = Written(device.memory_resource, theirs, want)
    made.write().sync()
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
    array = copied(np.arange(10), device=1)
    with cudacore.stream(cudacore.use_device(1)) as theirs:
        made = view(array, stream_ptr=int(theirs.handle))
        assert made.device_id == 1
        got = copy(theirs, made)
        theirs.sync()
    np.testing.assert_array_equal(got, np.arange(10))


class Copied:
    """Asks for a copy on a device where a consumer asks for the array."""

    def __init__(self, array, device):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(copy=True, dl_device=self.device, **keywords)


def test_go_copies_by_dlpack():
    """On the GPU and to the host, where nothing is copied without being asked."""
    array = copied(np.arange(1, 8))
    with pytest.raises(BufferError, match="the memory is on cuda:0"):
        array.__dlpack__(dl_device=(abi.CPU, 0))
    for kind, name in ((abi.CPU, "cpu"), (abi.CUDA, "cuda:0"), (abi.CUDA_HOST, "cuda_host:0")):
        got = ext.echo_array(Copied(array, (kind, 0)))
        assert got.device == name
        np.testing.assert_array_equal(numbers(got), np.arange(1, 8))
    on_the_gpu = ext.echo_array(Copied(array, (abi.CUDA, 0)))
    assert go.Place(on_the_gpu).buffers != go.Place(array).buffers


@pytest.mark.parametrize("name", ["cuda_host:0", "cuda_managed:0"])
def test_host_memory_is_ready_for_numpy(name):
    """NumPy names no stream and waits for none, and the copy may be pending."""
    array = copied(np.arange(1000)).to_device(name)
    np.testing.assert_array_equal(np.from_dlpack(array), np.arange(1000))
