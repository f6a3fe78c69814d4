"""Arrays of Numba and nanoarrow as arguments of Go functions in Python, and results of these in their
hands: by the CUDA Array Interface and by device arrays of Arrow."""

import extension
import nanoarrow
import numpy as np
import pytest
from extension import ext
from nanoarrow.device import DeviceType, c_device_array
from numba import cuda

import abi
import driver
import go
import nano
from go import copied as on_device
from go import numbers
from helpers import on_threads, pinned

pytestmark = pytest.mark.usefixtures("golang")

TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]


def read(array):
    """The values of an array of Numba."""
    got = array.copy_to_host()
    if array.stream:
        array.stream.synchronize()
    return got


def address(array):
    return array.__cuda_array_interface__["data"][0]


@pytest.mark.parametrize("name", TYPES)
def test_go_takes_arrays_of_numba(name):
    want = np.arange(1, 100).astype(name)
    array = cuda.to_device(want)
    taken = ext.echo_array(array)
    assert (taken.device, address(taken)) == ("cuda:0", address(array))
    np.testing.assert_array_equal(numbers(taken), want)
    np.testing.assert_array_equal(numbers(taken[10:20]), want[10:20])
    np.testing.assert_array_equal(read(cuda.as_cuda_array(taken)), want)


@pytest.mark.parametrize("name", TYPES)
def test_numba_reads_arrays_of_go(name):
    want = np.arange(1, 100).astype(name)
    array = on_device(want)
    np.testing.assert_array_equal(read(cuda.as_cuda_array(array)), want)
    np.testing.assert_array_equal(read(cuda.as_cuda_array(array[10:20])), want[10:20])


def test_matrices():
    want = np.arange(24, dtype="f4").reshape(4, 2, 3)
    taken = ext.echo_array(cuda.to_device(want))
    assert len(taken) == 4
    np.testing.assert_array_equal(read(cuda.as_cuda_array(taken)), want)
    np.testing.assert_array_equal(read(cuda.as_cuda_array(on_device(want))), want)


@pytest.mark.parametrize("which", [1, 2, None], ids=["legacy", "per_thread", "a_stream"])
def test_go_waits_for_numba(stream, which):
    """The call returns while Numba's copy is held back; its result is complete after the copy."""
    number = which or stream
    source = pinned(np.arange(40, 50))
    array = cuda.device_array(10, "i8", stream=cuda.external_stream(number))
    with driver.gate(number) as gate:
        array.copy_to_device(source, stream=cuda.external_stream(number))
        taken = ext.echo_array(array)
        assert not ext.ready(taken)
        with go.opening(gate):
            np.testing.assert_array_equal(numbers(taken), np.arange(40, 50))
        assert ext.ready(taken)


def test_numba_waits_for_go(stream):
    """The result of a Go function is held back on a stream that Numba does not know."""
    host = ext.echo_array(np.arange(1, 8))
    with driver.gate(stream) as gate:
        array = ext.copy_to(host, abi.CUDA, 0, stream)
        assert not ext.ready(array)
        assert array.__cuda_array_interface__["stream"] == 1  # ordered behind the copy
        with go.opening(gate):
            view = cuda.as_cuda_array(array)
        assert ext.ready(array)
        np.testing.assert_array_equal(read(view), np.arange(1, 8))


def test_pending_work_goes_through_go(stream):
    """From Numba to Go to Numba: the last one waits for the copy of the first one."""
    source = pinned(np.arange(40, 50))
    array = cuda.device_array(10, "i8", stream=cuda.external_stream(stream))
    with driver.gate(stream) as gate:
        array.copy_to_device(source, stream=cuda.external_stream(stream))
        taken = ext.echo_array(array)
        with go.opening(gate):
            view = cuda.as_cuda_array(taken)
        assert ext.ready(taken)
        np.testing.assert_array_equal(read(view), np.arange(40, 50))


def test_each_keeps_the_memory_of_the_other():
    array = cuda.to_device(np.arange(10))
    part = ext.echo_array(array)[2:5]
    del array
    view = cuda.as_cuda_array(part)
    del part
    np.testing.assert_array_equal(read(view), [2, 3, 4])


def test_columns_of_a_batch(stream):
    batch = nanoarrow.c_array_from_buffers(
        nanoarrow.struct({"a": nanoarrow.int64(), "b": nanoarrow.float64()}),
        length=3,
        buffers=[None],
        children=[nanoarrow.c_array([1, 2, 3], nanoarrow.int64()), nanoarrow.c_array([0.5, 1.5, 2.5], nanoarrow.float64())],
    )
    with driver.gate(stream) as gate:
        made = ext.copy_to(batch, abi.CUDA, 0, stream)
        a, b = made.columns
        assert not ext.ready(a) and not ext.ready(b)
        with go.opening(gate):
            first = cuda.as_cuda_array(a)
        np.testing.assert_array_equal(read(first), [1, 2, 3])
        np.testing.assert_array_equal(read(cuda.as_cuda_array(b)), [0.5, 1.5, 2.5])


@pytest.mark.parametrize(
    "make, text",
    [(lambda: cuda.to_device(np.arange(10))[::2], "strides = [16]"), (lambda: cuda.to_device(np.arange(3).astype("c16")), "complex")],
    ids=["strides", "complex"],
)
def test_go_refuses(make, text):
    with pytest.raises(NotImplementedError) as raised:
        ext.echo_array(make())
    assert str(raised.value).startswith("echo_array: argument array: ") and text in str(raised.value)


class Copied:
    """Asks for a copy on a device where a consumer asks for the array."""

    def __init__(self, array, device):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(copy=True, dl_device=self.device, **keywords)


def test_copies_by_dlpack():
    """On the GPU and to the host, where nothing is copied without being asked."""
    array = on_device(np.arange(1, 8))
    with pytest.raises(BufferError, match="the memory is on cuda:0"):
        array.__dlpack__(dl_device=(1, 0))
    for kind, name in ((1, "cpu"), (2, "cuda:0"), (3, "cuda_host:0")):
        copied = ext.echo_array(Copied(array, (kind, 0)))
        assert copied.device == name
        np.testing.assert_array_equal(numbers(copied), np.arange(1, 8))
    assert address(ext.echo_array(Copied(array, (2, 0)))) != address(array)


@pytest.mark.parametrize("name", ["cuda_host:0", "cuda_managed:0"])
def test_host_memory_is_ready_for_numpy(name):
    """NumPy names no stream and waits for none, and the copy may be pending."""
    array = on_device(np.arange(1000)).to_device(name)
    np.testing.assert_array_equal(np.from_dlpack(array), np.arange(1000))


@pytest.mark.two_devices
def test_on_the_second_device():
    with cuda.gpus[1]:
        array = cuda.to_device(np.arange(10))
        taken = ext.echo_array(array)
        assert taken.device == "cuda:1"
        near = taken.to_device("cuda:0")
        np.testing.assert_array_equal(numbers(near), np.arange(10))
        np.testing.assert_array_equal(read(cuda.as_cuda_array(taken)), np.arange(10))


@pytest.mark.machines("delayed", "random")
def test_threads():
    def work(i):
        for _ in range(5):
            taken = ext.echo_array(cuda.to_device(np.arange(i, i + 100)))
            np.testing.assert_array_equal(numbers(taken), np.arange(i, i + 100))
            np.testing.assert_array_equal(read(cuda.as_cuda_array(taken)), np.arange(i, i + 100))

    on_threads(4, work)


def test_nanoarrow_reads_arrays_of_go(stream, other):
    host = ext.echo_array(nanoarrow.c_array([1, None, 3], nanoarrow.int32()))
    with driver.gate(stream) as gate:
        made = ext.copy_to(host, abi.CUDA, 0, stream)
        array = c_device_array(made)
        assert (array.device_type, array.device_id) == (DeviceType.CUDA, 0)
        assert not ext.ready(made)
        with go.opening(gate):
            assert nano.values(go.copy_by_nanoarrow(array, other)) == [1, None, 3]


def test_nanoarrow_holds_batches_of_go(stream):
    array = nanoarrow.c_array_from_buffers(
        nanoarrow.struct({"a": nanoarrow.int64()}), 3, [None], children=[nanoarrow.c_array([1, 2, 3], nanoarrow.int64())]
    )
    made = ext.echo_batch(array).to_device("cuda")
    held = c_device_array(made)
    made.close()
    back = ext.echo_batch(held)
    assert back.device == "cuda:0"
    assert nano.values(go.copy_by_nanoarrow(held, stream)) == [{"a": 1}, {"a": 2}, {"a": 3}]
    np.testing.assert_array_equal(numbers(back["a"]), [1, 2, 3])


def test_go_takes_arrays_of_nanoarrow(stream):
    """They carry an event, behind which nanoarrow's copy is held back."""
    source = nano.array([1, None, 3], nanoarrow.int32())
    with driver.gate(stream) as gate:
        handed = go.handed_by_nanoarrow(source, stream)
        taken = ext.echo_array(handed)
        assert not ext.ready(taken)
        with go.opening(gate):
            assert nanoarrow.Array(taken.to_host()).to_pylist() == [1, None, 3]
        assert handed.releases == 0
    del taken
    go.settle()
    assert extension.settled() == {}
    assert handed.releases == 1
