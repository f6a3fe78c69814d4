"""Numba's device arrays: memory that only the driver can reach."""

import numpy as np
import pytest
from numba import cuda
from numba.cuda.cudadrv import driver as numba_driver
from numba.cuda.cudadrv.driver import CudaAPIError

import driver
import simulator

OUT_OF_MEMORY, ILLEGAL_ADDRESS = 2, 700

DTYPES = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c16", "M8[ns]", "m8[s]", "S5", [("a", "i4"), ("b", "f8")]]


def numbers(shape, dtype="i4", seed=1):
    dtype = np.dtype(dtype)
    random = np.random.default_rng(seed)
    size = int(np.prod(shape)) * dtype.itemsize
    raw = random.integers(0, 2 if dtype.kind == "b" else 120, size, dtype=np.uint8)
    return raw.view(dtype).reshape(shape) if size else np.empty(shape, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [1, 7, 4096, 100_003])
def test_round_trip(dtype, length):
    want = numbers(length, dtype)
    on_device = cuda.to_device(want)
    assert on_device.dtype == want.dtype
    got = on_device.copy_to_host()
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (3, 5), (2, 3, 4), (1, 1000)], ids=str)
def test_round_trip_of_shapes(shape, order):
    want = np.asarray(numbers(shape, "f4"), order=order)
    on_device = cuda.to_device(want)
    got = on_device.copy_to_host()
    assert (got.shape, got.strides) == (want.shape, want.strides)
    np.testing.assert_array_equal(got, want)


def test_copy_into_arrays_that_exist():
    want = numbers(1000)
    on_device = cuda.device_array_like(want)
    on_device.copy_to_device(want)
    got = np.zeros_like(want)
    assert on_device.copy_to_host(got) is got
    np.testing.assert_array_equal(got, want)


def test_copy_between_device_arrays():
    want = numbers(5000, "f8")
    first, second = cuda.to_device(want), cuda.device_array_like(want)
    second.copy_to_device(first)
    first.copy_to_device(np.zeros_like(want))
    np.testing.assert_array_equal(second.copy_to_host(), want)


def test_read_only_host_array():
    want = numbers(100)
    want.flags.writeable = False
    np.testing.assert_array_equal(cuda.to_device(want).copy_to_host(), want)


def test_views_share_the_memory():
    want = numbers((20, 30))
    on_device = cuda.to_device(want)
    start = driver.address(on_device.device_ctypes_pointer.value).value
    row = on_device[3]
    assert row.device_ctypes_pointer.value == start + 3 * 30 * 4
    np.testing.assert_array_equal(row.copy_to_host(), want[3])
    np.testing.assert_array_equal(on_device[4:9].copy_to_host(), want[4:9])
    np.testing.assert_array_equal(on_device.reshape(600)[7:11].copy_to_host(), want.reshape(600)[7:11])
    np.testing.assert_array_equal(on_device.ravel().view("u1").copy_to_host(), want.ravel().view("u1"))
    for part, host in zip(on_device.ravel().split(150), np.split(want.ravel(), 4)):
        np.testing.assert_array_equal(part.copy_to_host(), host)
    on_device[5].copy_to_device(np.zeros(30, "i4"))
    want[5] = 0
    np.testing.assert_array_equal(on_device.copy_to_host(), want)


def test_view_outlives_the_array():
    want = numbers(100)
    on_device = cuda.to_device(want)
    part = on_device[40:60]
    del on_device
    cuda.current_context().memory_manager.deallocations.clear()
    np.testing.assert_array_equal(part.copy_to_host(), want[40:60])


def test_single_elements_are_read():
    want = numbers(10, "f8")
    on_device = cuda.to_device(want)
    assert [on_device[i] for i in range(10)] == list(want)


def test_records():
    want = numbers(8, [("a", "i4"), ("b", "f8")])
    on_device = cuda.to_device(want)
    assert on_device[3].copy_to_host() == want[3]
    assert cuda.to_device(want[2]).copy_to_host() == want[2]


@pytest.mark.parametrize("on_stream", [False, True], ids=["synchronous", "on_stream"])
def test_memset(on_stream):
    stream = cuda.stream() if on_stream else 0
    on_device = cuda.to_device(numbers(1001, "u1"))
    on_device.gpu_data.memset(0xA5, stream=stream)
    numba_driver.device_memset(on_device[100:200], 0x5A, 100, stream=stream)
    got = on_device.copy_to_host(stream=stream)
    if stream:
        stream.synchronize()
    want = np.full(1001, 0xA5, "u1")
    want[100:200] = 0x5A
    np.testing.assert_array_equal(got, want)


def test_empty_array():
    on_device = cuda.to_device(np.empty((0, 3), "f4"))
    assert on_device.device_ctypes_pointer.value is None
    assert on_device.copy_to_host().shape == (0, 3)


@pytest.mark.simulator
def test_empty_array_is_no_matter_for_the_driver():
    with simulator.counting() as counted:
        cuda.to_device(np.empty(0, "f4")).copy_to_host()
    calls = counted().calls
    assert not {"cuMemAlloc", "cuMemcpyHtoD", "cuMemcpyDtoH"} & set(calls), calls


@pytest.mark.simulator
def test_bytes_are_counted():
    want = numbers(1000, "f8")
    with simulator.counting() as counted:
        first = cuda.to_device(want)
        assert counted().bytes["htod"] == 8000
        second = cuda.device_array_like(want)
        second.copy_to_device(first)
        second[10:20].copy_to_host()
        second.gpu_data.memset(0)
        cuda.synchronize()
    bytes = counted().bytes
    assert bytes == {"htod": 8000, "dtod": 8000, "dtoh": 80, "memset": 8000, "peer": 0, "htoh": 0}


@pytest.mark.simulator
def test_fresh_memory_is_garbage():
    """Not zeros, and not the contents of a freed array."""
    old = cuda.to_device(np.full(4096, 0x11, "u1"))
    del old
    cuda.current_context().memory_manager.deallocations.clear()
    got = cuda.device_array(4096, "u1").copy_to_host()
    assert not (got == 0).any() and not (got == 0x11).any()


@pytest.mark.program
@pytest.mark.parametrize("access", ["read", "write"])
def test_device_memory_faults_on_the_host(run_program, access):
    def reads():
        import ctypes

        import numpy
        from numba import cuda

        on_device = cuda.to_device(numpy.arange(1000))
        cuda.synchronize()
        print("alive", flush=True)
        ctypes.string_at(on_device.device_ctypes_pointer.value + 2000, 1)

    def writes():
        import ctypes

        import numpy
        from numba import cuda

        on_device = cuda.to_device(numpy.arange(1000))
        cuda.synchronize()
        print("alive", flush=True)
        ctypes.memset(on_device.device_ctypes_pointer.value + 2000, 0, 1)

    ended = run_program(reads if access == "read" else writes)
    assert ended.output == "alive\n"
    assert ended.status == -11, ended.errors


def test_driver_knows_the_memory():
    on_device = cuda.to_device(numbers(1000))
    at = on_device.device_ctypes_pointer.value
    assert driver.pointer(driver.MEMORY_TYPE, at + 100, driver.ctypes.c_uint) == driver.DEVICE
    assert driver.pointer(driver.CONTEXT, at) == cuda.current_context().handle.value
    assert driver.pointer(driver.DEVICE_POINTER, at + 100) == at + 100
    assert driver.pointer(driver.DEVICE_ORDINAL, at, driver.ctypes.c_int) == cuda.get_current_device().id
    assert numba_driver.device_extents(on_device[10:20]) == (at, at + 4000)


def test_driver_does_not_know_other_memory():
    host = numbers(1000)
    with pytest.raises(driver.Error, match="CUDA_ERROR_INVALID_VALUE"):
        driver.pointer(driver.MEMORY_TYPE, host.ctypes.data, driver.ctypes.c_uint)


def test_memory_that_was_freed_is_not_known():
    at = cuda.to_device(numbers(100)).device_ctypes_pointer.value
    cuda.current_context().memory_manager.deallocations.clear()
    with pytest.raises(driver.Error, match="CUDA_ERROR_INVALID_VALUE"):
        driver.pointer(driver.MEMORY_TYPE, at, driver.ctypes.c_uint)
    with pytest.raises(driver.Error, match="CUDA_ERROR_INVALID_VALUE"):
        driver.call("cuMemFree_v2", driver.address(at))


def test_more_memory_than_there_is():
    free, _ = cuda.current_context().get_memory_info()
    with pytest.raises(CudaAPIError, match="CUDA_ERROR_OUT_OF_MEMORY") as refused:
        cuda.device_array(free + 1, "u1")
    assert refused.value.code == OUT_OF_MEMORY
    np.testing.assert_array_equal(cuda.to_device(numbers(10)).copy_to_host(), numbers(10))


@pytest.mark.simulator
def test_numba_frees_what_it_kept_when_memory_runs_out():
    kept = cuda.to_device(numbers(1000))
    del kept
    pending = cuda.current_context().memory_manager.deallocations
    assert len(pending) == 1
    with simulator.failing("cuMemAlloc", OUT_OF_MEMORY):
        again = cuda.to_device(numbers(1000))
    assert len(pending) == 0
    np.testing.assert_array_equal(again.copy_to_host(), numbers(1000))


@pytest.mark.simulator
@pytest.mark.parametrize("function", ["cuMemAlloc", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyDtoD", "cuMemsetD8"])
def test_failures_of_the_driver_reach_the_caller(function):
    def work():
        first = cuda.to_device(numbers(1000))
        second = cuda.device_array_like(first)
        second.copy_to_device(first)
        second.gpu_data.memset(1, 10)
        return second.copy_to_host()

    with simulator.failing(function, ILLEGAL_ADDRESS), pytest.raises(CudaAPIError, match=f"Call to {function} ") as failed:
        work()
    assert failed.value.code == ILLEGAL_ADDRESS
    assert work()[3] == numbers(1000)[3]
