"""Columns of Go and arrays of Numba, exchanged by the CUDA array interface as package cudaarray
has it: types, streams, masks and lifetimes, in both directions."""

import numpy as np
import pytest
from golib import GoError
from numba import cuda

import cudaarray
import driver
import go
from cudaarray import Exported, Mask, taken
from helpers import pinned

pytestmark = pytest.mark.usefixtures("golang")


@pytest.fixture(autouse=True)
def everything_is_released(golang):
    yield
    go.settle()
    cudaarray.end()

TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]


def read(array):
    """The values of an array of Numba."""
    got = array.copy_to_host()
    if array.stream:
        array.stream.synchronize()
    return got


@pytest.fixture
def made():
    with go.on_device("int64", "valid") as array:
        array.wait()
        yield array


@pytest.mark.parametrize("name", TYPES)
def test_numba_reads_what_go_made(name):
    with go.on_device(name, "valid") as array, array.slice(2, 6) as part:
        for each in (array, part):
            each.wait()
            with each.copy_to_host() as host:
                want = np.array(host.values(), name)
            interface = Exported(each).__cuda_array_interface__
            assert np.dtype(interface["typestr"]) == np.dtype(name)
            assert interface["data"][1] and interface["version"] == 3
            np.testing.assert_array_equal(read(cuda.as_cuda_array(Exported(each))), want)


def test_numba_keeps_the_column():
    """The view holds the object, which holds Go's array."""
    with go.on_device("int64", "valid") as array:
        array.wait()
        view = cuda.as_cuda_array(Exported(array))
    np.testing.assert_array_equal(read(view), np.arange(1, 8))


@pytest.mark.parametrize("which", [1, 2, None], ids=["legacy", "per_thread", "a_stream"])
def test_numba_waits_for_the_stream(stream, other, which):
    """Go's copy is held back on one stream; the interface has another one."""
    with driver.gate(stream) as gate, go.on_device("int64", "valid", stream=stream) as array:
        exported = Exported(array, which or other)
        assert exported.__cuda_array_interface__["stream"] == (which or other)
        assert not array.ready()
        with go.opening(gate):
            view = cuda.as_cuda_array(exported)
        assert array.ready()
        np.testing.assert_array_equal(read(view), np.arange(1, 8))
        del view, exported


def test_pending_work_needs_a_stream(stream):
    with driver.gate(stream) as gate, go.on_device("int64", "valid", stream=stream) as array:
        with pytest.raises(GoError, match="an array with an event, want one without: WithStream"):
            Exported(array)
        gate.open()
        array.wait()
        np.testing.assert_array_equal(read(cuda.as_cuda_array(Exported(array))), np.arange(1, 8))


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
        back, releases = taken(exported)
        with back, back.copy_to_host() as got, array.copy_to_host() as want:
            assert got.values() == want.values() and None in got.values()
        go.settle()
        assert releases() == 1
        del exported


@pytest.mark.parametrize("name", [*TYPES, "datetime64[us]", "timedelta64[s]", "bool"])
def test_go_reads_what_numba_made(name):
    want = np.array([1, 2, 3, 0, 1]).astype(name)
    array = cuda.to_device(want)
    with taken(array)[0] as got, got.slice(1, 4) as part, part.copy_to_host() as host:
        assert go.Place(got).buffers == [None, array.device_ctypes_pointer.value]
        if name.endswith("]"):
            assert len(host.values()) == 3
        else:
            assert host.values() == want[1:4].astype("f8").tolist()


def test_matrices():
    want = np.arange(24, dtype="f4").reshape(4, 2, 3)
    with taken(cuda.to_device(want))[0] as got:
        with got.copy_to_host() as host:
            assert host.values() == want.tolist()
        exported = Exported(got)
        assert exported.__cuda_array_interface__["shape"] == (4, 2, 3)
        np.testing.assert_array_equal(read(cuda.as_cuda_array(exported)), want)
        del exported


@pytest.mark.parametrize("which", [1, 2, None], ids=["legacy", "per_thread", "a_stream"])
def test_go_waits_for_the_stream(stream, which):
    """Numba's copy is behind a gate when Go takes the array."""
    number = which or stream
    source = pinned(np.arange(40, 50))
    array = cuda.device_array(10, "i8", stream=cuda.external_stream(number))
    with driver.gate(number) as gate:
        array.copy_to_device(source, stream=cuda.external_stream(number))
        assert array.__cuda_array_interface__["stream"] == number
        got, _ = taken(array)
        with got:
            assert not got.ready()
            with go.opening(gate), got.copy_to_host() as host:
                assert host.values() == list(range(40, 50))


def test_go_keeps_what_it_takes():
    array = cuda.to_device(np.arange(10))
    got, releases = taken(array)
    with got.slice(2, 5) as part:
        got.release()
        go.settle()
        assert releases() == 0
    go.settle()
    assert releases() == 1


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


@pytest.mark.parametrize(
    "changes, want",
    [
        ({"strides": (16,)}, "strides = .16."),
        ({"typestr": "<c16"}, "no complex numbers"),
        ({"stream": 0}, "stream = 0"),
        ({"version": 4}, "version = 4"),
        ({"data": (np.zeros(9).ctypes.data, False)}, "want the address of CUDA memory"),
        ({"shape": (11,)}, r"shape = \[11\], want elements in the 80 bytes that the allocation has from there, not 88"),
        ({"shape": (10, 2)}, r"shape = \[10 2\]"),
        ({"shape": (1 << 59,)}, r"shape = "),
        ({"shape": (10,), "mask": Mask({"shape": (1 << 20,), "typestr": "<t1", "version": 3, "data": None})}, r"mask.shape = \[1048576\]"),
    ],
)
def test_go_refuses(changes, want):
    array = cuda.to_device(np.arange(10))
    if "mask" in changes:
        changes["mask"].__cuda_array_interface__["data"] = array.__cuda_array_interface__["data"]
    with pytest.raises(GoError, match=want):
        taken(Changed(array, **changes))


def test_go_refuses_masks_of_bytes():
    array = cuda.to_device(np.arange(10))
    mask = Mask(cuda.to_device(np.ones(10, "?")).__cuda_array_interface__)
    with pytest.raises(GoError, match=r'mask.typestr = "\|b1", want "<t1"'):
        taken(Changed(array, mask=mask))
