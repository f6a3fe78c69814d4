"""Columns of Go as arrays of JAX on the CPU, and arrays of JAX as columns, by DLPack. JAX asks for the form before
DLPack 1, which cannot say that memory is read-only."""

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

if sys.version_info >= (3, 15):
    pytest.skip("JAX has no wheels for Python 3.15", allow_module_level=True)

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)

SHAPES = [(5,), (4, 3), (3, 2, 2), (1,)]


def values(dtype, shape):
    return np.arange(np.prod(shape)).astype(dtype).reshape(shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_jax_reads_go(dtype, shape):
    expected = values(dtype, shape)
    with go_array(expected.tolist(), dtype, *shape[1:]) as go:
        there = jax.dlpack.from_dlpack(godlpack.Tensor(go))
    assert there.dtype == dtype and there.shape == shape
    assert (np.asarray(there) == expected).all()
    assert (np.asarray(jax.jit(lambda x: x + x)(there)) == expected + expected).all()


@TAKES
@pytest.mark.parametrize("shape", [*SHAPES, (), (0,), (0, 3)], ids=str)
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_go_reads_jax(dtype, shape, take):
    source = jax.numpy.asarray(values(dtype, shape)) + 1
    expected = np.atleast_1d(np.asarray(source))
    with take(source) as go:
        assert go.values() == expected.tolist()
        back = pa.array(go)
    assert back.type == list_type(dtype, *expected.shape[1:])
    assert back.to_pylist() == expected.tolist()


def test_memory_is_shared_in_both_directions():
    source = pa.array(range(100_000), pa.int64())
    with GoArray.from_arrow(source) as go:
        there = jax.dlpack.from_dlpack(godlpack.Tensor(go), copy=False)
    address = source.buffers()[1].address
    assert there.unsafe_buffer_pointer() == address
    del source
    golib.ext.free_memory()
    assert int(there.sum()) == sum(range(100_000)), "the array of JAX holds the memory on its own"
    for take in godlpack.from_dlpack, godlpack.from_dlpack_legacy:
        with take(there) as go:
            assert pa.array(go).buffers()[1].address == address, "the column that it came from"


@TAKES
def test_go_keeps_the_memory_of_jax(take):
    source = jax.numpy.arange(100_000) + 0
    with take(source) as go:
        address = source.unsafe_buffer_pointer()
        del source
        gc.collect()
        garbage = [jax.numpy.ones(100_000) for _ in range(4)]
        assert go.values() == list(range(100_000))
        assert pa.array(go).buffers()[1].address == address
        go.release(on_other_thread=True)
        del garbage


def test_jax_does_not_write_to_go():
    """An array that a program donates is memory for results, but not one that JAX has imported."""
    source = pa.array(range(64), pa.int64())
    with GoArray.from_arrow(source) as go:
        there = jax.dlpack.from_dlpack(godlpack.Tensor(go), copy=False)
    result = jax.jit(lambda x: x.at[3].set(100), donate_argnums=0)(there)
    assert result[3] == 100 and there.is_deleted()
    assert source.to_pylist() == list(range(64))


def test_memory_that_is_not_aligned_is_copied():
    """JAX wants its arrays aligned, and a slice begins at any element."""
    source = pa.array(range(64), pa.int64())
    with GoArray.from_arrow(source) as whole, whole.slice(1, 4) as go:
        there = jax.dlpack.from_dlpack(godlpack.Tensor(go))
        assert there.tolist() == [1, 2, 3]
        assert there.unsafe_buffer_pointer() != source.buffers()[1].address + 8
        with pytest.raises(Exception, match="align"):
            jax.dlpack.from_dlpack(godlpack.Tensor(go), copy=False)


@pytest.mark.parametrize(
    "source, reason",
    [
        (np.zeros(2, bool), r"dl_tensor.dtype = 6 \(bool of 8 bits\), .* view it as uint8"),
        (np.zeros(2, np.complex64), r"dl_tensor.dtype = 5 \(complex of 64 bits\)"),
        (np.zeros((3, 0)), r"dl_tensor.shape\[1\] = 0, want at least 1"),
    ],
    ids=["bool", "complex", "empty rows"],
)
def test_refused_arrays_of_jax(source, reason):
    with pytest.raises(GoError, match=reason):
        godlpack.from_dlpack(jax.numpy.asarray(source))


def test_bfloat16_is_refused():
    with pytest.raises(GoError, match=r"dl_tensor.dtype = 4 \(bfloat of 16 bits\)"):
        godlpack.from_dlpack(jax.numpy.zeros(2, jax.numpy.bfloat16))


def test_work_of_jax_is_done_when_go_reads():
    """JAX computes on threads of its own, and returns before it has finished."""
    heavy = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, m: jax.numpy.tanh(m @ m), x))
    start = jax.numpy.ones((200, 200)) / 400
    with godlpack.from_dlpack(heavy(start)) as go:
        assert go.values() == np.asarray(heavy(start)).tolist()


def test_many_threads():
    def work(_):
        for i in range(50):
            source = jax.numpy.arange(12).reshape(4, 3) + i
            with godlpack.from_dlpack(source) as go:
                there = jax.dlpack.from_dlpack(godlpack.Tensor(go))
                go.release(on_other_thread=True)
                assert (there == source).all()

    on_threads(8, work)
