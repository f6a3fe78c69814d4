"""DLPack tensors between Go and NumPy and PyArrow, both ways and in both forms. The counters of all sides
are compared after each test."""

import gc
import sys

import numpy as np
import pyarrow as pa
import pytest

import godlpack
import golib
from golib import GoArray, GoError
from streams import on_threads
from tensors import NUMBERS, TAKES, go_array, list_type

FORMS = pytest.mark.parametrize("legacy", [False, True], ids=["versioned", "legacy"])

def address_of(array):
    """That of the elements of PyArrow's array, below its lists."""
    while pa.types.is_fixed_size_list(array.type):
        array = array.flatten()
    return array.buffers()[1].address + array.offset * array.type.byte_width


@FORMS
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_numpy_reads_go(dtype, legacy):
    for values, sizes in [([1, 2, 3, 4], ()), ([[1, 2], [3, 4], [5, 6]], (2,)), ([[[1], [2]], [[3], [4]]], (2, 1)), ([], ()), ([], (2,))]:
        with go_array(values, dtype, *sizes) as go:
            there = np.from_dlpack(godlpack.Tensor(go, legacy))
        expected = np.array(values, dtype).reshape((-1, *sizes) if values else (0, *sizes))
        assert there.dtype == dtype and there.shape == expected.shape
        assert (there == expected).all()
        assert there.flags.c_contiguous
        del there


@FORMS
def test_numpy_has_the_memory_of_go(legacy):
    source = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2))
    with GoArray.from_arrow(source) as whole, whole.slice(1, 3) as go:
        there = np.from_dlpack(godlpack.Tensor(go, legacy))
    assert there.ctypes.data == source.values.buffers()[1].address + 8
    assert there.tolist() == [[3, 4], [5, 6]]
    assert not there.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        there[0] = 0
    del source
    golib.ext.free_memory()
    assert there.tolist() == [[3, 4], [5, 6]], "the tensor holds the memory on its own"
    view = there[1:]
    del there
    assert view.tolist() == [[5, 6]]


@TAKES
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_go_reads_numpy(dtype, take):
    for source in [
        np.arange(5).astype(dtype),
        np.arange(12).astype(dtype).reshape(4, 3),
        np.arange(12).astype(dtype).reshape(3, 2, 2)[1:],
        np.arange(5).astype(dtype)[2:4],
        np.zeros((0, 3), dtype),
        np.zeros(0, dtype),
        np.arange(6).astype(dtype).reshape(1, 6)[:, :3],
        np.array(7, dtype),
    ]:
        with take(source) as go:
            expected = np.atleast_1d(source)
            assert go.values() == expected.tolist()
            back = pa.array(go)
            assert back.type == list_type(dtype, *expected.shape[1:])
            assert back.to_pylist() == expected.tolist()
            if expected.size:
                assert address_of(back) == source.ctypes.data, "nothing is copied"
            del back
        del source, expected


@TAKES
def test_go_keeps_numpys_memory(take):
    source = np.arange(100_000)
    with take(source) as go:
        address = source.ctypes.data
        del source
        gc.collect()
        garbage = [np.ones(100_000) for _ in range(4)]
        assert go.values() == list(range(100_000))
        there = np.from_dlpack(godlpack.Tensor(go))
        assert there.ctypes.data == address
        del there, garbage


@pytest.mark.parametrize("with_gil", [False, True])
def test_numpys_deleter_on_a_thread_of_go(with_gil):
    """NumPy's deleter takes Python's lock itself."""
    source = np.arange(10)
    before = sys.getrefcount(source)
    go = godlpack.take(source.__dlpack__(), with_gil)
    assert sys.getrefcount(source) == before + 1
    go.release(on_other_thread=True)
    assert sys.getrefcount(source) == before


@TAKES
@pytest.mark.parametrize(
    "source, reason",
    [
        (np.zeros((3, 4))[:, ::2], r"dl_tensor.strides\[1\] = 2, want 1: .* copy the tensor first"),
        (np.zeros((3, 4)).T, r"dl_tensor.strides\[1\] = 4, want 1"),
        (np.zeros(4)[::-1], r"dl_tensor.strides\[0\] = -1, want 1"),
        (np.zeros(4)[::2], r"dl_tensor.strides\[0\] = 2, want 1"),
        (np.zeros(2, bool), r"dl_tensor.dtype = 6 \(bool of 8 bits\), .* view it as uint8"),
        (np.zeros(2, np.complex64), r"dl_tensor.dtype = 5 \(complex of 64 bits\), .* a last dimension of 2"),
        (np.zeros((3, 0)), r"dl_tensor.shape\[1\] = 0, want at least 1"),
    ],
    ids=lambda value: "" if isinstance(value, np.ndarray) else value,
)
def test_refused_tensors_of_numpy(take, source, reason):
    """A refusal takes the tensor too: the counters show that NumPy's deleter was called."""
    with pytest.raises(GoError, match=reason):
        take(source)


@FORMS
@pytest.mark.parametrize(
    "source, reason",
    [
        (pa.array([1, None]), r"Array.NullCount = 1, want 0: a tensor has no nulls"),
        (pa.array([True]), r"Array.DataType = bool, want .*\(Arrow's bool is a bit and DLPack's a byte: cast to uint8"),
        (pa.array([0], pa.timestamp("ns")), r"DLPack has no times: cast to int64"),
        (pa.array(["a"]), r"the elements of a tensor have one size"),
        (pa.array([[1, None]], pa.list_(pa.int8(), 2)), r"Array.children\[0\].NullCount = 1"),
    ],
    ids=lambda value: "" if isinstance(value, pa.Array) else value,
)
def test_refused_arrays(source, reason, legacy):
    with GoArray.from_arrow(source) as go:
        with pytest.raises(GoError, match=reason):
            np.from_dlpack(godlpack.Tensor(go, legacy))


def test_streams_of_the_cpu():
    """The CPU has no streams: None, and -1."""
    with go_array([1, 2], np.dtype("int32")) as go:
        assert godlpack.name_of(godlpack.Tensor(go).__dlpack__(stream=-1)) == "dltensor"
        for stream in 0, 1, 2, 1 << 40:
            with pytest.raises(GoError, match=f"stream = {stream}, want None or -1: memory of cpu has no streams"):
                godlpack.Tensor(go).__dlpack__(stream=stream)
        with pytest.raises(BufferError):
            np.from_dlpack(godlpack.Tensor(go), copy=True)


# Capsules.


class Once:
    """A producer that has one capsule."""

    def __init__(self, capsule):
        self._capsule = capsule

    def __dlpack__(self, **_):
        return self._capsule

    def __dlpack_device__(self):
        return (1, 0)


@FORMS
def test_a_capsule_is_consumed_once(legacy):
    """The consumer renames it, NumPy and Go."""
    version, name = (None, "dltensor") if legacy else ((1, 0), "dltensor_versioned")
    with go_array([1, 2], np.dtype("int32")) as go:
        capsule = godlpack.Tensor(go).__dlpack__(max_version=version)
        assert godlpack.name_of(capsule) == name
        there = np.from_dlpack(Once(capsule))
        assert godlpack.name_of(capsule) == "used_" + name
        with pytest.raises((ValueError, BufferError, TypeError)):
            np.from_dlpack(Once(capsule))
        with pytest.raises(ValueError, match="incorrect name"):
            godlpack.take(capsule)
        assert there.tolist() == [1, 2]
        del there, capsule
    capsule = np.arange(3).__dlpack__(max_version=version)
    with godlpack.take(capsule) as go:
        assert godlpack.name_of(capsule) == "used_" + name
        with pytest.raises(ValueError, match="incorrect name"):
            godlpack.take(capsule)
        assert go.values() == [0, 1, 2]


def test_capsules_of_the_versions_that_a_consumer_asks_for():
    """None takes them: the array is released with them."""
    versions = {None: "dltensor", (0, 8): "dltensor", (1, 0): "dltensor_versioned", (2, 0): "dltensor_versioned"}
    with go_array([1], np.dtype("int8")) as go:
        before = golib.stats()["exported_arrays"]
        for version, name in versions.items():
            capsule = godlpack.Tensor(go).__dlpack__(max_version=version)
            assert godlpack.name_of(capsule) == name
            assert golib.stats()["exported_arrays"] == before + 1
            del capsule
            assert golib.stats()["exported_arrays"] == before


# PyArrow.


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_arrays_of_pyarrow(dtype):
    source = pa.array(np.arange(6).astype(dtype))[2:5]
    for take in godlpack.from_dlpack, godlpack.from_dlpack_legacy:
        with take(source) as go:
            assert go.values() == [2, 3, 4]
            assert pa.array(go).buffers()[1].address == source.buffers()[1].address + 2 * dtype.itemsize
    with go_array([1, 2, 3], dtype) as whole, whole.slice(1, 3) as go:
        there = pa.Array.from_dlpack(godlpack.Tensor(go))
    assert there.type == pa.from_numpy_dtype(dtype) and there.to_pylist() == [2, 3]


def test_tensors_of_pyarrow():
    with go_array([[1, 2], [3, 4], [5, 6]], np.dtype("float32"), 2) as go:
        there = pa.Tensor.from_dlpack(godlpack.Tensor(go))
        shaped = pa.FixedShapeTensorArray.from_dlpack(godlpack.Tensor(go))
    assert there.shape == (3, 2) and there.is_contiguous and not there.is_mutable
    assert there.to_numpy().tolist() == shaped.to_numpy_ndarray().tolist() == [[1, 2], [3, 4], [5, 6]]
    source = pa.Tensor.from_numpy(np.arange(6).reshape(2, 3))
    for take in godlpack.from_dlpack, godlpack.from_dlpack_legacy:
        with take(source) as go:
            assert go.values() == [[0, 1, 2], [3, 4, 5]]


def test_pyarrow_does_not_take_the_legacy_form():
    with go_array([1], np.dtype("int32")) as go:
        for take in pa.Array.from_dlpack, pa.Tensor.from_dlpack:
            with pytest.raises(ValueError, match="incorrect name"):
                take(godlpack.Tensor(go, legacy=True))


def test_many_threads():
    def work(_):
        for _ in range(100):
            source = np.arange(12, dtype="int32").reshape(4, 3)
            with godlpack.from_dlpack(source) as go:
                there = np.from_dlpack(godlpack.Tensor(go))
                go.release(on_other_thread=True)
                assert there.ctypes.data == source.ctypes.data

    on_threads(8, work)
