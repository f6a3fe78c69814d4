"""Work on streams by the driver alone, and page-locked memory for it."""

import ctypes

import driver
import hold
import kernels

import numpy as np

_free = {}  # page-locked memory that is not in use, by its size: the allocation of more may wait for the device
_used = []


def begin():
    """Makes the primary context of the first GPU current, and what the checks need there."""
    driver.call("cuInit", 0)
    context = driver.ask(driver.handle, "cuDevicePrimaryCtxRetain", 0)
    driver.call("cuCtxPushCurrent_v2", driver.handle(context))
    hold.begin()


def fill(stream, address, count, first, held=None):
    """Writes the numbers from first on, as int64, at an address, as work on a stream that a hold may hold back before."""
    source = None if kernels.are_there() else pinned(np.arange(first, first + count, dtype="i8"))
    if held is not None:
        held.begin(stream)
    if source is None:
        kernels.launch("fill", stream, address, count, first)
    else:
        arguments = driver.address(address), driver.handle(source.ctypes.data), driver.size(source.nbytes)
        driver.call("cuMemcpyHtoDAsync_v2", *arguments, driver.handle(stream))


def pinned(values):
    """A copy in page-locked memory, which other checks get afterwards."""
    size = max(values.nbytes, 1)
    memory = _free[size].pop() if _free.get(size) else driver.ask(driver.handle, "cuMemAllocHost_v2", driver.size(size))
    _used.append((size, memory))
    array = np.frombuffer((ctypes.c_char * values.nbytes).from_address(memory), values.dtype)
    array[:] = values
    return array


def synchronize():
    """Waits for all work on the GPU, and raises what went wrong there."""
    driver.call("cuCtxSynchronize")


def forget():
    """Takes back the memory of pinned. The GPU must have done the work with it."""
    while _used:
        size, memory = _used.pop()
        _free.setdefault(size, []).append(memory)


def stream():
    """A stream that waits for no other: its handle. It lives as long as the process."""
    return driver.ask(driver.handle, "cuStreamCreate", driver.NON_BLOCKING)


def record(stream):
    """An event behind the work of a stream: an object whose address is that of a CUevent, as the Arrow interface has it."""
    made = ctypes.c_void_p(driver.ask(driver.handle, "cuEventCreate", driver.DISABLE_TIMING))
    driver.record(made.value, stream)
    return made
