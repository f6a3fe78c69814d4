"""Device memory of Numba that a process in Go opens, and the other way round, by CUDA IPC handles."""

import contextlib
import ctypes
import os
import subprocess

import numpy as np
import pytest
from numba import cuda

import cudacore

COUNT = 1000


@contextlib.contextmanager
def peer(*arguments):
    """The process in Go, and what it says first. It ends when the block does, and nothing of it is left."""
    process = subprocess.Popen(
        [os.environ["IPCPEER"], *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        said = process.stdout.readline().strip()
        if not said:
            pytest.fail(process.stderr.read())
        yield said
        out, err = process.communicate("end\n", timeout=180)
        assert (out, err, process.returncode) == ("closed\n", "", 0)
    finally:
        process.kill()
        process.communicate()


def handle_bytes(handle):
    """Of Numba's IpcHandle, which numba-cuda has as an object of cuda-bindings."""
    raw = handle.handle
    return ctypes.string_at(raw.getPtr(), 64) if hasattr(raw, "getPtr") else bytes(raw)


def handle_of(raw):
    """What Numba makes an IpcHandle of."""
    if not cudacore.is_there:
        from numba.cuda.cudadrv import drvapi

        return drvapi.cu_ipc_mem_handle.from_buffer_copy(raw)
    from cuda.bindings import driver as bindings

    handle = bindings.CUipcMemHandle()
    ctypes.memmove(handle.getPtr(), raw, len(raw))
    return handle


def test_go_opens_memory_of_numba():
    array = cuda.to_device(np.arange(COUNT, dtype=np.int32))
    cuda.synchronize()
    handle = cuda.current_context().get_ipc_handle(array.gpu_data)
    with peer("open", handle_bytes(handle).hex()) as said:
        assert int(said) == COUNT * (COUNT - 1) // 2
    np.testing.assert_array_equal(array.copy_to_host(), np.arange(COUNT))


def test_numba_opens_memory_of_go():
    from numba.cuda.cudadrv import driver

    with peer("share") as said:
        ipc = driver.IpcHandle(None, handle_of(bytes.fromhex(said)), 4 * COUNT, offset=0)
        array = ipc.open_array(cuda.current_context(), shape=COUNT, dtype=np.dtype(np.int32))
        np.testing.assert_array_equal(array.copy_to_host(), np.arange(COUNT))
        cuda.synchronize()
        ipc.close()
