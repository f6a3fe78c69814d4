"""cuda-core's memory resources, buffers and copies."""

import cuda.bindings.driver as bindings
import cuda.core.utils as utils
import numpy as np
import pytest
from cuda.core import (
    Buffer,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    Host,
    ManagedMemoryResource,
    ManagedMemoryResourceOptions,
    PinnedMemoryResource,
    PinnedMemoryResourceOptions,
)

import cudacore
import driver
import simulator

SIZE = 8000


@pytest.fixture
def device(machine):
    return cudacore.use_device(0)


@pytest.fixture
def stream(device):
    with cudacore.stream(device) as made:
        yield made


RESOURCES = {
    "default": lambda device: device.memory_resource,
    "own": lambda device: DeviceMemoryResource(device, DeviceMemoryResourceOptions()),
    "pinned": lambda device: PinnedMemoryResource(),
    "own_pinned": lambda device: PinnedMemoryResource(PinnedMemoryResourceOptions()),
    "numa_pinned": lambda device: PinnedMemoryResource(PinnedMemoryResourceOptions(numa_id=0)),
    "managed": lambda device: ManagedMemoryResource(),
    "own_managed": lambda device: ManagedMemoryResource(ManagedMemoryResourceOptions()),
}


@pytest.fixture(params=RESOURCES)
def resource(request, device):
    return RESOURCES[request.param](device)


def test_copies(resource, stream):
    """From page-locked memory, within the resource, and back."""
    numbers = np.arange(SIZE // 8)
    source, _ = cudacore.pinned(numbers)
    target, got = cudacore.pinned(np.zeros(SIZE // 8, "i8"))
    with (
        cudacore.closing(resource.allocate(SIZE, stream=stream), stream) as first,
        cudacore.closing(resource.allocate(SIZE, stream=stream), stream) as second,
    ):
        first.copy_from(source, stream=stream)
        first.copy_to(second, stream=stream)
        second.copy_to(target, stream=stream)
        stream.sync()
    np.testing.assert_array_equal(got, numbers)


@pytest.mark.parametrize("name", ["default", "own", "managed", "own_managed"])
def test_nothing_is_waited_for(device, stream, name):
    """But for copies within the host, which are synchronous. Behind a closed gate, a
    call that waits would wait for ever."""
    resource = RESOURCES[name](device)
    source, _ = cudacore.pinned(np.arange(SIZE // 8))
    target, got = cudacore.pinned(np.zeros(SIZE // 8, "i8"))
    with driver.gate(int(stream.handle)) as gate:
        buffer = resource.allocate(SIZE, stream=stream)
        buffer.copy_from(source, stream=stream)
        buffer.copy_to(target, stream=stream)
        buffer.close(stream)
        assert not stream.record().is_done and (got == 0).all()
        gate.open()
        stream.sync()
    np.testing.assert_array_equal(got, np.arange(SIZE // 8))


def test_fills(resource, stream):
    target, got = cudacore.pinned(np.zeros(SIZE, "u1"))
    with cudacore.closing(resource.allocate(SIZE, stream=stream), stream) as buffer:
        buffer.fill(7, stream=stream)
        buffer.copy_to(target, stream=stream)
        stream.sync()
        assert (got == 7).all()
        buffer.fill(b"\x01\x02\x03\x04", stream=stream)
        buffer.copy_to(target, stream=stream)
        stream.sync()
        assert got.tobytes() == b"\x01\x02\x03\x04" * (SIZE // 4)


def test_host_reads_and_writes_what_is_its_own(resource, stream):
    with cudacore.closing(resource.allocate(SIZE, stream=stream), stream) as buffer:
        assert buffer.is_device_accessible
        stream.sync()
        if not buffer.is_host_accessible:
            return
        cudacore.host_view(buffer)[:] = 5
        target, got = cudacore.pinned(np.zeros(SIZE, "u1"))
        buffer.copy_to(target, stream=stream)
        stream.sync()
        assert (got == 5).all()


def test_driver_knows_the_memory(resource, stream):
    with cudacore.closing(resource.allocate(SIZE, stream=stream), stream) as buffer:
        stream.sync()
        address = int(buffer.handle)
        of_host = isinstance(resource, PinnedMemoryResource)
        assert driver.pointer(driver.MEMORY_TYPE, address, driver.ctypes.c_uint) == (driver.HOST if of_host else driver.DEVICE)
        assert bool(driver.pointer(driver.IS_MANAGED, address, driver.ctypes.c_uint) & 0xFF) == buffer.is_managed
        assert buffer.is_managed == isinstance(resource, ManagedMemoryResource)


def test_pools_count_what_is_in_use(device, stream):
    pool = RESOURCES["own"](device)
    assert pool.attributes.used_mem_current == 0
    buffer = pool.allocate(SIZE, stream=stream)
    assert pool.attributes.used_mem_current >= SIZE
    assert pool.attributes.reserved_mem_current >= pool.attributes.used_mem_current
    buffer.close(stream)
    stream.sync()
    assert pool.attributes.used_mem_current == 0
    assert pool.attributes.used_mem_high >= SIZE


@pytest.mark.simulator
def test_pool_of_limited_size_is_exhausted(device, stream):
    pool = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=10000))
    with cudacore.closing(pool.allocate(SIZE, stream=stream), stream):
        with pytest.raises(Exception, match="CUDA_ERROR_OUT_OF_MEMORY"):
            pool.allocate(SIZE, stream=stream)


@pytest.mark.two_devices
def test_pool_access(device, stream):
    """The driver has the setting that cuda-core requests, for that pool alone."""
    pool, other = RESOURCES["own"](device), RESOURCES["own"](device)
    assert set(pool.peer_accessible_by) == set()
    pool.peer_accessible_by = [1]
    assert [d.device_id for d in pool.peer_accessible_by] == [1]
    assert _access(pool, 1) == 3 and _access(other, 1) == 0
    pool.peer_accessible_by = []
    assert _access(pool, 1) == 0 and _access(pool, 0) == 3


def _access(pool, device):
    location = (driver.ctypes.c_int * 2)(1, device)
    return driver.ask(driver.ctypes.c_int, "cuMemPoolGetAccess", driver.handle(int(pool.handle)), location)


@pytest.mark.two_devices
def test_copies_to_a_device_that_was_given_access(device, stream):
    numbers = np.arange(SIZE // 8)
    source, _ = cudacore.pinned(numbers)
    target, got = cudacore.pinned(np.zeros(SIZE // 8, "i8"))
    pool = RESOURCES["own"](device)
    pool.peer_accessible_by = [1]
    second = cudacore.use_device(1)
    there = RESOURCES["own"](second)
    there.peer_accessible_by = [0]
    cudacore.use_device(0)
    with (
        cudacore.closing(pool.allocate(SIZE, stream=stream), stream) as near,
        cudacore.closing(there.allocate(SIZE, stream=stream), stream) as far,
    ):
        near.copy_from(source, stream=stream)
        near.copy_to(far, stream=stream)
        far.copy_to(target, stream=stream)
        stream.sync()
    np.testing.assert_array_equal(got, numbers)


def _copy_batch_of_bindings(stream, sources, targets):
    attributes = bindings.CUmemcpyAttributes()
    attributes.srcAccessOrder = bindings.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    to, of = ([bindings.CUdeviceptr(int(buffer.handle)) for buffer in each] for each in (targets, sources))
    sizes = [buffer.size for buffer in sources]
    (error,) = bindings.cuMemcpyBatchAsync(to, of, sizes, len(to), [attributes], [0], 1, stream.handle)
    assert error == bindings.CUresult.CUDA_SUCCESS, error


@pytest.mark.parametrize("copy_batch", [utils.copy_batch, _copy_batch_of_bindings])
def test_batch_of_copies(device, stream, copy_batch):
    numbers = [np.arange(SIZE // 8) + i for i in range(3)]
    sources = [cudacore.pinned(each)[0] for each in numbers]
    targets = [cudacore.pinned(np.zeros(SIZE // 8, "i8")) for _ in numbers]
    buffers = [device.allocate(SIZE, stream=stream) for _ in numbers]
    with driver.gate(int(stream.handle)) as gate:
        copy_batch(stream, sources, buffers)
        copy_batch(stream, buffers, [target for target, _ in targets])
        assert all((got == 0).all() for _, got in targets)
        gate.open()
        stream.sync()
    for want, (_, got) in zip(numbers, targets):
        np.testing.assert_array_equal(got, want)
    for buffer in buffers:
        buffer.close(stream)


def test_batches_of_prefetches(device, stream):
    """They change no contents, and a range that is discarded can be written again."""
    resource = ManagedMemoryResource(ManagedMemoryResourceOptions())
    buffers = [resource.allocate(SIZE, stream=stream) for _ in range(2)]
    for buffer in buffers:
        buffer.fill(3, stream=stream)
    utils.prefetch_batch(stream, buffers, [device, Host()])
    stream.sync()
    assert all((cudacore.host_view(buffer) == 3).all() for buffer in buffers)
    utils.discard_batch(stream, buffers)
    utils.discard_prefetch_batch(stream, buffers, device)
    for buffer in buffers:
        buffer.fill(4, stream=stream)
    stream.sync()
    assert all((cudacore.host_view(buffer) == 4).all() for buffer in buffers)
    for buffer in buffers:
        buffer.close(stream)


@pytest.mark.simulator
def test_discarded_memory_is_garbage(device, stream):
    resource = ManagedMemoryResource(ManagedMemoryResourceOptions())
    with (
        cudacore.closing(resource.allocate(SIZE, stream=stream), stream) as first,
        cudacore.closing(resource.allocate(SIZE, stream=stream), stream) as second,
    ):
        first.fill(3, stream=stream)
        utils.discard_batch(stream, [first, second])
        stream.sync()
        assert (cudacore.host_view(first) != 3).all()


def test_buffer_over_memory_of_another_library(device, stream):
    """It keeps its owner, and frees nothing."""
    target, got = cudacore.pinned(np.zeros(SIZE, "u1"))
    with driver.memory(SIZE) as address:
        buffer = Buffer.from_handle(address, SIZE, owner=target)
        buffer.fill(9, stream=stream)
        buffer.copy_to(target, stream=stream)
        stream.sync()
        assert (got == 9).all() and buffer.owner is target
        buffer.close()


@pytest.mark.simulator
def test_memory_of_pools_is_freed_without_waiting(device, stream):
    with driver.gate(int(stream.handle)), simulator.counting() as counted:
        buffer = device.allocate(SIZE, stream=stream)
        buffer.fill(1, stream=stream)
        buffer.close(stream)
        assert counted().synchronisations == 0
