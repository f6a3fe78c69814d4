"""Arrays of Go and arrays of Numba, exchanged by the CUDA array interface: types, streams, masks and lifetimes, in both directions."""

import nanoarrow
import numpy as np
import pytest
from extension import ext
from golib import GoError
from numba import cuda

import abi
import cudaarray
import driver
import go
from cudaarray import Exported, Mask, taken
from go import copied, numbers
from helpers import on_threads, pinned

pytestmark = pytest.mark.usefixtures("golang")

TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]


@pytest.fixture(autouse=True)
def everything_is_released(golang):
    yield
    go.settle()
    cudaarray.end()


@pytest.fixture
def made():
    with go.on_device("int64", "valid") as array:
        array.wait()
        yield array


def read(array):
    """The values of an array of Numba."""
    got = array.copy_to_host()
    if array.stream:
        array.stream.synchronize()
    return got


def address(array):
    return array.__cuda_array_interface__["data"][0]


@pytest.mark.machines("delayed")
@pytest.mark.parametrize("name", TYPES)
def test_types(name):
    """Of arrays that Numba made, and of arrays that Go made: in both hands, and of their slices."""
    want = np.arange(1, 100).astype(name)
    theirs = cuda.to_device(want)
    from_numba = ext.echo_array(theirs)
    assert (from_numba.device, address(from_numba)) == ("cuda:0", address(theirs))
    for array in from_numba, copied(want):
        for each, values in ((array, want), (array[10:20], want[10:20])):
            interface = each.__cuda_array_interface__
            assert np.dtype(interface["typestr"]) == want.dtype
            assert interface["data"][1] and interface["version"] == 3
            np.testing.assert_array_equal(numbers(each), values)
            np.testing.assert_array_equal(read(cuda.as_cuda_array(each)), values)


@pytest.mark.machines("delayed")
@pytest.mark.parametrize("name", ["datetime64[us]", "timedelta64[s]", "bool"])
def test_types_from_numba(name):
    want = np.array([1, 2, 3, 0, 1]).astype(name)
    array = cuda.to_device(want)
    with taken(array)[0] as got, got.slice(1, 4) as part, part.copy_to_host() as host:
        assert go.Place(got).buffers == [None, address(array)]
        if name == "bool":
            assert host.values() == [1, 1, 0]
        else:
            assert len(host.values()) == 3


def test_matrices():
    want = np.arange(24, dtype="f4").reshape(4, 2, 3)
    with taken(cuda.to_device(want))[0] as got:
        with got.copy_to_host() as host:
            assert host.values() == want.tolist()
        for array in got.object, copied(want):
            assert array.__cuda_array_interface__["shape"] == (4, 2, 3)
            np.testing.assert_array_equal(read(cuda.as_cuda_array(array)), want)


@pytest.mark.parametrize("which", ["default", 1, 2, None], ids=["default", "legacy", "per_thread", "a_stream"])
def test_numba_waits_for_go(stream, other, which):
    """Go's copy is held back on one stream; the interface names another one, which is behind the copy."""
    with driver.gate(stream) as gate, go.on_device("int64", "valid", stream=stream) as array:
        exported = array.object if which == "default" else Exported(array, which or other)
        assert exported.__cuda_array_interface__["stream"] == (1 if which == "default" else which or other)
        assert not array.ready()
        with go.opening(gate):
            view = cuda.as_cuda_array(exported)
        assert array.ready()
        np.testing.assert_array_equal(read(view), np.arange(1, 8))
        del view, exported


@pytest.mark.parametrize("which", [1, 2, None], ids=["legacy", "per_thread", "a_stream"])
def test_numba_reads_behind_go(stream, other, which):
    """With nothing held back and no wait of the host: the simulator reports a read that no event orders behind Go's copy."""
    with go.on_device("int64", "valid", stream=stream) as array:
        view = cuda.as_cuda_array(Exported(array, which or other), sync=False)
        np.testing.assert_array_equal(read(view), np.arange(1, 8))
        del view


def test_numba_does_not_wait_when_told_not_to(stream, other):
    """Its stream does."""
    target = pinned(np.zeros(7, "i8"))
    with driver.gate(stream) as gate, go.on_device("int64", "valid", stream=stream) as array:
        view = cuda.as_cuda_array(Exported(array, other), sync=False)
        view.copy_to_host(target, stream=cuda.external_stream(other))
        assert not array.ready() and (target == 0).all()
        gate.open()
        driver.call("cuStreamSynchronize", driver.handle(other))
        del view
    np.testing.assert_array_equal(target, np.arange(1, 8))


def test_pending_work_needs_a_stream(stream):
    with driver.gate(stream) as gate, go.on_device("int64", "valid", stream=stream) as array:
        with pytest.raises(GoError, match="an array with an event, want one without: WithStream"):
            Exported(array)
        gate.open()
        array.wait()
        np.testing.assert_array_equal(read(cuda.as_cuda_array(Exported(array))), np.arange(1, 8))


@pytest.mark.parametrize("which", [1, 2, None], ids=["legacy", "per_thread", "a_stream"])
def test_go_waits_for_numba(stream, which):
    """The call returns while Numba's copy is held back; its result is complete after the copy."""
    number = which or stream
    source = pinned(np.arange(40, 50))
    array = cuda.device_array(10, "i8", stream=cuda.external_stream(number))
    with driver.gate(number) as gate:
        array.copy_to_device(source, stream=cuda.external_stream(number))
        assert array.__cuda_array_interface__["stream"] == number
        got = ext.echo_array(array)
        assert not ext.ready(got)
        with go.opening(gate):
            np.testing.assert_array_equal(numbers(got), np.arange(40, 50))
        assert ext.ready(got)


def test_pending_work_goes_through_go(stream):
    """From Numba to Go to Numba: the last one waits for the copy of the first one."""
    source = pinned(np.arange(40, 50))
    array = cuda.device_array(10, "i8", stream=cuda.external_stream(stream))
    with driver.gate(stream) as gate:
        array.copy_to_device(source, stream=cuda.external_stream(stream))
        got = ext.echo_array(array)
        with go.opening(gate):
            view = cuda.as_cuda_array(got)
        assert ext.ready(got)
        np.testing.assert_array_equal(read(view), np.arange(40, 50))


def test_columns_of_a_batch(stream):
    batch = nanoarrow.c_array_from_buffers(
        nanoarrow.struct({"a": nanoarrow.int64(), "b": nanoarrow.float64()}),
        length=3,
        buffers=[None],
        children=[nanoarrow.c_array([1, 2, 3], nanoarrow.int64()), nanoarrow.c_array([0.5, 1.5, 2.5], nanoarrow.float64())],
    )
    with driver.gate(stream) as gate:
        a, b = ext.copy_to(batch, abi.CUDA, 0, stream).columns
        assert not ext.ready(a) and not ext.ready(b)
        with go.opening(gate):
            first = cuda.as_cuda_array(a)
        np.testing.assert_array_equal(read(first), [1, 2, 3])
        np.testing.assert_array_equal(read(cuda.as_cuda_array(b)), [0.5, 1.5, 2.5])


def test_each_keeps_the_memory_of_the_other():
    array = cuda.to_device(np.arange(10))
    part = ext.echo_array(array)[2:5]
    del array
    view = cuda.as_cuda_array(part)
    del part
    np.testing.assert_array_equal(read(view), [2, 3, 4])


def test_go_keeps_what_it_takes():
    got, is_released = taken(cuda.to_device(np.arange(10)))
    with got.slice(2, 5):
        got.release()
        go.settle()
        assert not is_released()
    go.settle()
    assert is_released()


def test_what_numba_does_with_the_read_only_flag(made):
    """Nothing: it writes all the same."""
    view = cuda.as_cuda_array(Exported(made))
    view.copy_to_device(np.arange(70, 77))
    cuda.synchronize()
    with made.copy_to_host() as host:
        assert host.values() == list(range(70, 77))
    assert not Exported(made, writable=True).__cuda_array_interface__["data"][1]


def test_masks_are_refused_by_numba():
    with go.on_device("int64", "nulls") as array:
        array.wait()
        with pytest.raises(GoError, match="NullCount"):
            Exported(array)
        exported = Exported(array, bitmap=True)
        assert exported.__cuda_array_interface__["mask"].__cuda_array_interface__["typestr"] == "<t1"
        with pytest.raises(NotImplementedError, match="Masked"):
            cuda.as_cuda_array(exported)
        # cuDF has this form, and Go takes it back.
        back, is_released = taken(exported)
        with back, back.copy_to_host() as got, array.copy_to_host() as want:
            assert got.values() == want.values() and None in got.values()
        go.settle()
        assert is_released()
        del exported


def test_empty():
    with taken(cuda.device_array(0, "i8"))[0] as got:
        exported = Exported(got)
        assert exported.__cuda_array_interface__["data"] == (0, True)
        assert cuda.as_cuda_array(exported).size == 0
        del exported


class Changed:
    def __init__(self, array, **changes):
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **changes}


def _mask(array, **changes):
    return {"mask": Mask({"version": 3, "data": array.__cuda_array_interface__["data"], **changes})}


@pytest.mark.machines("in_order")
@pytest.mark.parametrize(
    "changes, want, error",
    [
        ({"strides": (16,)}, "strides = .16.", NotImplementedError),
        ({"typestr": "<c16"}, "no complex numbers", NotImplementedError),
        ({"stream": 0}, "stream = 0", GoError),
        ({"version": 4}, "version = 4", GoError),
        ({"data": (np.zeros(9).ctypes.data, False)}, "want the address of CUDA memory", GoError),
        ({"shape": (11,)}, r"shape = \[11\], want elements in the 80 bytes that the allocation has from there, not 88", GoError),
        ({"shape": (10, 2)}, r"shape = \[10 2\]", GoError),
        ({"shape": (1 << 59,)}, r"shape = ", GoError),
        (lambda array: _mask(array, shape=(1 << 20,), typestr="<t1"), r"mask.shape = \[1048576\]", GoError),
        (lambda array: _mask(array, shape=(10,), typestr="|b1"), r'mask.typestr = "\|b1", want "<t1"', GoError),
    ],
)
def test_go_refuses(changes, want, error):
    array = cuda.to_device(np.arange(10))
    changed = Changed(array, **(changes(array) if callable(changes) else changes))
    with pytest.raises(error, match=f"^echo_array: argument array: .*{want}"):
        taken(changed)


@pytest.mark.two_devices
def test_on_the_second_device():
    with cuda.gpus[1]:
        got = ext.echo_array(cuda.to_device(np.arange(10)))
        assert got.device == "cuda:1"
        np.testing.assert_array_equal(numbers(got.to_device("cuda:0")), np.arange(10))
        np.testing.assert_array_equal(read(cuda.as_cuda_array(got)), np.arange(10))


@pytest.mark.machines("delayed", "random")
def test_threads():
    def work(i):
        for _ in range(5):
            got = ext.echo_array(cuda.to_device(np.arange(i, i + 100)))
            np.testing.assert_array_equal(numbers(got), np.arange(i, i + 100))
            np.testing.assert_array_equal(read(cuda.as_cuda_array(got)), np.arange(i, i + 100))

    on_threads(4, work)
