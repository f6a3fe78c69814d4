"""Memory that host and device share: pinned, registered, mapped and managed; and the
free memory."""

import gc

import numpy as np
import pytest
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError

import driver
import simulator

PORTABLE, DEVICE_MAP, WRITE_COMBINED = 1, 2, 4


def free_pending():
    gc.collect()
    cuda.current_context().deallocations.clear()
    cuda.current_context().memory_manager.deallocations.clear()


def memory_type(array):
    at = array.ctypes.data if hasattr(array, "ctypes") else array.device_ctypes_pointer.value
    return driver.pointer(driver.MEMORY_TYPE, at, driver.ctypes.c_uint)


def host_flags(at):
    return driver.ask(driver.ctypes.c_uint, "cuMemHostGetFlags", driver.handle(at))


def is_managed(array):
    return bool(driver.pointer(driver.IS_MANAGED, array.ctypes.data, driver.ctypes.c_uint))


def test_pinned_array():
    array = cuda.pinned_array((10, 20), "f4")
    array[:] = np.arange(200).reshape(10, 20)
    assert memory_type(array) == driver.HOST
    assert not is_managed(array)
    np.testing.assert_array_equal(cuda.to_device(array).copy_to_host(), array)


def test_pinned_array_like():
    for like in (np.zeros((3, 4), "f4"), np.zeros((3, 4), "f8", order="F"), np.zeros((4, 3, 2)).transpose(1, 0, 2)):
        array = cuda.pinned_array_like(like)
        assert (array.shape, array.strides, array.dtype) == (like.shape, like.strides, like.dtype)
        assert memory_type(array) == driver.HOST


@pytest.mark.simulator
def test_pinned_memory_is_counted():
    before = simulator.report()["live"]["host_bytes"]
    array = cuda.pinned_array(1000, "f8")
    assert simulator.report()["live"]["host_bytes"] == before + 8000
    del array
    free_pending()
    assert simulator.report()["live"]["host_bytes"] == before


def test_host_memory_is_pinned_for_a_while(apart):
    source = np.arange(5000)
    with pytest.raises(driver.Error):
        memory_type(source)
    with cuda.pinned(source):
        assert memory_type(source) == driver.HOST
        on_device = cuda.device_array_like(source)
        on_device.copy_to_device(source, stream=apart)
        apart.synchronize()
    free_pending()
    with pytest.raises(driver.Error):
        memory_type(source)
    np.testing.assert_array_equal(on_device.copy_to_host(), np.arange(5000))


@pytest.mark.simulator
def test_registered_memory_is_not_staged(apart):
    source = np.arange(5000)
    on_device = cuda.device_array_like(source)
    with simulator.counting() as counted:
        with cuda.pinned(source):
            assert simulator.report()["live"]["registered_bytes"] == source.nbytes
            on_device.copy_to_device(source, stream=apart)
            apart.synchronize()
            assert counted().staged_bytes == 0
        free_pending()
        on_device.copy_to_device(source, stream=apart)
        apart.synchronize()
        assert counted().staged_bytes == source.nbytes


def test_memory_is_registered_once():
    source = np.arange(5000)
    with cuda.pinned(source), pytest.raises(CudaAPIError, match="HOST_MEMORY_ALREADY_REGISTERED"):
        with cuda.pinned(source):
            pass


def test_mapped_array():
    """The device writes data that the host reads, and the reverse."""
    array = cuda.mapped_array(1000, "u1")
    array[:] = 1
    assert host_flags(array.ctypes.data) & DEVICE_MAP
    copied = cuda.device_array(1000, "u1")
    copied.copy_to_device(cuda.as_cuda_array(Interface(array)))
    assert (copied.copy_to_host() == 1).all()
    array.gpu_data.memset(7)
    cuda.synchronize()
    assert (array == 7).all()


@pytest.mark.parametrize("portable", [False, True], ids=["own_context", "portable"])
@pytest.mark.parametrize("wc", [False, True], ids=["cached", "write_combined"])
@pytest.mark.parametrize("mapped", [False, True], ids=["pinned", "mapped"])
def test_flags_of_pinned_memory(mapped, portable, wc):
    """A driver may do more than it was asked for."""
    memory = cuda.current_context().memhostalloc(1000, mapped=mapped, portable=portable, wc=wc)
    flags = host_flags(memory.host_pointer.value)
    assert bool(flags & DEVICE_MAP) >= mapped
    assert bool(flags & PORTABLE) >= portable
    assert bool(flags & WRITE_COMBINED) == wc


class Interface:
    """The device's side of a mapped or managed array."""

    def __init__(self, array):
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.device_ctypes_pointer.value, False),
            "version": 3,
        }


def test_mapped_host_array():
    source = np.arange(1000)
    with cuda.mapped(source) as on_device:
        assert memory_type(source) == driver.HOST
        np.testing.assert_array_equal(on_device.copy_to_host(), source)
        on_device.copy_to_device(cuda.to_device(source * 2))
        cuda.synchronize()
        np.testing.assert_array_equal(source, np.arange(1000) * 2)
    free_pending()
    with pytest.raises(driver.Error):
        memory_type(source)


def test_mapped_array_like():
    like = np.zeros((3, 4), "f4", order="F")
    array = cuda.mapped_array_like(like, portable=True)
    assert (array.shape, array.strides, array.dtype) == (like.shape, like.strides, like.dtype)


@pytest.mark.parametrize("attach_global", [True, False], ids=["global", "host"])
def test_managed_array(attach_global):
    """One address for both."""
    array = cuda.managed_array(1000, "u1", attach_global=attach_global)
    array[:] = 3
    assert array.ctypes.data == array.device_ctypes_pointer.value
    assert memory_type(array) == driver.DEVICE
    assert is_managed(array)
    copied = cuda.device_array(1000, "u1")
    copied.copy_to_device(cuda.as_cuda_array(Interface(array)))
    assert (copied.copy_to_host() == 3).all()
    array.gpu_data.memset(9)
    cuda.synchronize()
    assert (array == 9).all()
    cuda.as_cuda_array(Interface(array)).copy_to_device(np.full(1000, 5, "u1"))
    cuda.synchronize()
    assert (array == 5).all()


@pytest.mark.simulator
def test_managed_memory_is_counted():
    before = simulator.report()["live"]["managed_bytes"]
    array = cuda.managed_array(1000, "f8")
    assert simulator.report()["live"]["managed_bytes"] == before + 8000
    del array
    free_pending()
    assert simulator.report()["live"]["managed_bytes"] == before


def test_memory_info():
    free, total = cuda.current_context().get_memory_info()
    assert 0 < free <= total
    on_device = cuda.device_array(64 << 20, "u1")
    less, same = cuda.current_context().get_memory_info()
    assert same == total
    assert less <= free - (64 << 20)
    del on_device
    free_pending()
    again, _ = cuda.current_context().get_memory_info()
    assert again > less


def test_freed_memory_is_kept_a_while():
    """Numba's own habit, to free ten at a time."""
    manager = cuda.current_context().memory_manager
    arrays = [cuda.device_array(100, "u1") for _ in range(5)]
    with cuda.defer_cleanup():
        arrays.clear()
        gc.collect()
        assert len(manager.deallocations) == 5
    assert len(manager.deallocations) == 5
    free_pending()
    assert len(manager.deallocations) == 0


@pytest.mark.simulator
def test_freeing_waits_for_the_work_that_uses_the_memory(apart):
    """cuMemFree is allowed while the device is at work, and waits."""
    target = cuda.pinned_array(1 << 16, "u1")
    for i in range(20):
        on_device = cuda.to_device(np.full(1 << 16, i, "u1"))
        on_device.copy_to_host(target, stream=apart)
        del on_device
        free_pending()
        assert (target == i).all()


@pytest.mark.simulator
def test_what_is_left_is_listed():
    array = cuda.device_array(12_345, "u1")
    leaks = simulator.report()["leaks"]
    assert any("12345 bytes" in leak and f"{array.device_ctypes_pointer.value:x}" in leak for leak in leaks), leaks


@pytest.mark.simulator
@pytest.mark.program
def test_limit_of_memory(run_program):
    def program():
        from numba import cuda
        from numba.cuda.cudadrv.driver import CudaAPIError

        assert cuda.current_context().get_memory_info().total == 1 << 20
        kept = cuda.device_array(1 << 19, "u1")
        try:
            cuda.device_array((1 << 19) + 1, "u1")
        except CudaAPIError as e:
            print(e.code)
        del kept
        print(cuda.device_array((1 << 19) + 1, "u1").size)

    assert run_program(program, "memory=1048576").check().output == "2\n524289\n"


@pytest.mark.simulator
@pytest.mark.program
def test_machine_without_managed_memory(run_program):
    def program():
        from numba import cuda
        from numba.cuda.cudadrv.driver import CudaAPIError

        assert not cuda.get_current_device().MANAGED_MEMORY
        try:
            cuda.managed_array(10)
        except CudaAPIError as e:
            print(e.code)

    assert run_program(program, "managed=0").check().output == "801\n"
