"""Memory of a GPU that a process in Go shares, opened by arrowdevice.share, which imports no library of CUDA, and read by Numba."""

import ctypes
import os
import subprocess

import numpy as np
from numba import cuda

import abi
import driver
from arrowdevice import share


LEGACY = driver.handle(1)  # the legacy default stream, which Numba copies on


class Column:
    """The int32 of a column, by the CUDA Array Interface: consumers wait for the legacy default stream, which has waited for the
    owner's event."""

    def __init__(self, array):
        self.__cuda_array_interface__ = {
            "shape": (array.length,), "typestr": "<i4", "data": (array.buffers[1], True), "version": 3, "stream": 1,
        }  # fmt: skip


def test_numba_reads_memory_of_go():
    with subprocess.Popen([os.environ["SHAREPEER"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:

        def ask(what):
            owner.stdin.write(f"{what}\n")
            owner.stdin.flush()
            return owner.stdout.readline().strip()

        with share.open(bytes.fromhex(ask("share int32 valid gpu 1"))) as batch:
            _, capsule = batch.__arrow_c_device_array__()
            source = abi.ArrowDeviceArray.from_address(abi.capsule_pointer(capsule, "arrow_device_array"))
            struct = abi.ArrowDeviceArray.from_buffer_copy(source)
            source.array.release = None
            with abi.owned(struct):
                if struct.sync_event:
                    event = ctypes.c_void_p.from_address(struct.sync_event)
                    driver.call("cuStreamWaitEvent", LEGACY, event, 0)
                numbers = cuda.as_cuda_array(Column(struct.array.children[0].contents))
                copied = numbers.copy_to_host()  # on the stream of the array, and so not complete yet
                cuda.synchronize()
                np.testing.assert_array_equal(copied, [1, 2, 3, 4, 5, 6, 7])
        assert ask("wait 60") == "released"
        owner.stdin.close()
