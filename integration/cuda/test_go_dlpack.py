"""Arrays of Go as cuda-core views them by DLPack, and memory of cuda-core that Go takes, in both forms of
the tensor."""

import godlpack
import numpy as np
import pytest
from cuda.core.utils import StridedMemoryView

import abi
import cudacore
import driver
import go

pytestmark = pytest.mark.usefixtures("golang")


class OnDevice(godlpack.Tensor):
    """The tensor of an array on a GPU."""

    def __dlpack_device__(self):
        return (abi.CUDA, 0)


class LegacyOnDevice(OnDevice):
    """That of a producer from before DLPack 1."""

    def __dlpack__(self, *, stream=None, **_):
        return self._export(False, stream)


@pytest.fixture(params=[OnDevice, LegacyOnDevice], ids=["versioned", "legacy"])
def tensor(request):
    return request.param


@pytest.fixture
def device(machine):
    return cudacore.use_device(0)


@pytest.fixture
def theirs(device):
    """A stream of cuda-core."""
    with cudacore.stream(device) as made:
        yield made


def copy(stream, view):
    """A copy in page-locked memory, which is there when the stream has done it."""
    _, got = cudacore.pinned(np.zeros(view.shape, view.dtype))
    driver.copy_to_host(got, view.ptr, int(stream.handle))
    return got


def test_core_waits_for_go(theirs, stream, tensor):
    """Go's copy is held back on a stream."""
    with driver.gate(stream) as gate, go.on_device("int64", "valid", stream=stream) as array:
        view = StridedMemoryView.from_dlpack(tensor(array), stream_ptr=int(theirs.handle))
        assert (view.shape, view.dtype, view.device_id) == ((7,), np.int64, 0)
        assert view.readonly or tensor is LegacyOnDevice  # which cannot say so
        got = copy(theirs, view)
        done = theirs.record()
        cudacore.stays_pending(done)
        assert not array.ready()
        gate.open()
        done.sync()
        np.testing.assert_array_equal(got, np.arange(1, 8))
        del view


def test_a_view_outlives_the_array(theirs, tensor):
    with go.on_device("int64", "valid") as array:
        view = StridedMemoryView.from_dlpack(tensor(array), stream_ptr=int(theirs.handle))
    got = copy(theirs, view)
    theirs.sync()
    np.testing.assert_array_equal(got, np.arange(1, 8))


@pytest.mark.parametrize("take", [godlpack.from_dlpack, godlpack.from_dlpack_legacy], ids=["versioned", "legacy"])
def test_go_takes_buffers_of_core(device, theirs, take):
    """They are tensors of bytes, complete when the caller has waited for their stream."""
    want = np.arange(100, dtype="u1")
    source, _ = cudacore.pinned(want)
    with cudacore.closing(device.allocate(100, stream=theirs), theirs) as buffer:
        buffer.copy_from(source, stream=theirs)
        theirs.sync()
        with take(buffer) as taken, taken.slice(10, 20) as part, part.copy_to_host() as host:
            assert taken.describe()["device"] == "cuda:0"
            assert go.Place(taken).buffers == [None, int(buffer.handle)]
            assert np.array(host.values(), "i1").view("u1").tolist() == list(range(10, 20))
        go.settle()
