"""cuda-core, where it is there: the environment of CUDA 13."""

import contextlib
import ctypes
import importlib.util

import simulator  # noqa: F401, loads the driver: cuda-bindings asks for libcuda.so.1

import numpy as np

is_there = importlib.util.find_spec("cuda") is not None and importlib.util.find_spec("cuda.core") is not None
if is_there:
    import cuda.core as core


def use_device(ordinal):
    """The device, with its primary context current on this thread."""
    if not is_there:
        return None
    device = core.Device(ordinal)
    device.set_current()
    return device


def open_devices():
    """Objects that cuda-core keeps of each device for the life of the process."""
    if is_there:
        for i in reversed(range(len(core.Device.get_all_devices()))):
            use_device(i)


@contextlib.contextmanager
def stream(device):
    """A stream of CU_STREAM_NON_BLOCKING, the kind that cuda-core makes. Its work is
    done at the end."""
    made = device.create_stream()
    try:
        yield made
    finally:
        made.sync()
        made.close()


@contextlib.contextmanager
def closing(buffer, stream):
    """A buffer that is freed behind the work of a stream."""
    try:
        yield buffer
    finally:
        buffer.close(stream)


def host_view(buffer, dtype="u1"):
    """A buffer that the host can read and write, as an array over the same memory, which
    keeps the buffer."""
    memory = (ctypes.c_char * buffer.size).from_address(int(buffer.handle))
    memory.owner = buffer
    return np.frombuffer(memory, dtype)


def pinned(values):
    """A copy in page-locked memory that no stream is needed for: the buffer, and an
    array over it."""
    values = np.ascontiguousarray(values)
    buffer = core.LegacyPinnedMemoryResource().allocate(values.nbytes)
    view = host_view(buffer, values.dtype)
    view[:] = values
    return buffer, view
