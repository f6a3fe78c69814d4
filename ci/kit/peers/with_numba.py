"""Numba: its own kernels where it can compile them. It has no DLPack."""

import os
import warnings

import child
import simulator

# Numba takes the path of a file, and finds the driver itself without one.
if not os.path.isfile(os.environ["NUMBA_CUDA_DRIVER"]):
    del os.environ["NUMBA_CUDA_DRIVER"]

import numpy as np

# Numba 0.68.0 asks for a name that NumPy 2.5 has no longer, when it compiles a kernel.
if not hasattr(np, "row_stack"):
    np.row_stack = np.vstack

import numba
from numba import cuda

import peer
import work


def _compile():
    """A kernel that writes numbers, and one that copies."""

    @cuda.jit
    def fill(out, first):
        for i in range(cuda.threadIdx.x, out.size, cuda.blockDim.x):
            out[i] = first + i

    @cuda.jit
    def copy(array, out):
        for i in range(cuda.threadIdx.x, out.size, cuda.blockDim.x):
            out[i] = array[i]

    return fill, copy


class Peer(peer.Peer):
    name = "numba"
    protocols = ("cai", "arrow")
    syncs_interface = True  # unless NUMBA_CUDA_ARRAY_INTERFACE_SYNC is 0

    def __init__(self):
        super().__init__()
        try:
            cuda.current_context()
        except Exception as e:
            raise child.Skip(f"numba.cuda {_version()} does not run here: {type(e).__name__}: {child.first_line(e)}") from None
        self.version = f"numba {_version()}"
        self._kernels, self._results = None, {}

    def open(self):
        warnings.simplefilter("ignore")  # of kernels with one block
        if not simulator.is_simulator:
            self._kernels = _compile()
        try:
            super().open()
        except Exception as e:
            if self._kernels is None:
                raise
            # Its compiler may be missing: then the kernels are the driver's, on Numba's arrays and streams.
            print(f"numba: no kernels of its own, but those of the driver: {type(e).__name__}: {child.first_line(e)}")
            self._kernels = None
            super().open()

    def array(self, values):
        return self._array(values, 0)

    def _array(self, values, stream):
        values = np.ascontiguousarray(values)
        array = cuda.device_array(values.shape, values.dtype, stream=stream)
        if values.size:
            array.copy_to_device(values)
        (stream or cuda.default_stream()).synchronize()  # and not the GPU, where other work is pending
        return array

    def pending(self, count, first, stream, held=None):
        external = cuda.external_stream(stream)
        array = self._array(np.full(count, -1), external)
        if self._kernels is None:
            work.fill(stream, self.address(array), count, first, held)
        else:
            if held is not None:
                held.begin(stream)
            self._kernels[0][1, 256, external](array, first)
        return array

    def read(self, array, stream, held=None):
        external = cuda.external_stream(stream)
        if self._kernels is None:
            return self._read_without_kernels(array, external, stream, held)
        out = self._result(array.shape, array.dtype, external)
        if held is not None:
            held.begin(stream)
        if array.ndim == 1 and array.dtype == np.int64 and array.size:
            self._kernels[1][1, 256, external](array, out)
        else:
            out.copy_to_device(array, stream=external)

        def finish():
            got = out.copy_to_host(stream=external)
            external.synchronize()
            return got

        return peer.Reading(finish)

    def _result(self, shape, dtype, stream):
        """Memory for what a kernel reads, which is kept: Numba has no cache, and a driver may wait for held work to allocate some."""
        if (shape, dtype) not in self._results:
            self._results[shape, dtype] = cuda.device_array(shape, dtype, stream=stream)
        return self._results[shape, dtype]

    def _read_without_kernels(self, array, external, stream, held):
        got = work.pinned(np.zeros(array.shape, array.dtype).reshape(-1)).reshape(array.shape)
        if held is not None:
            held.begin(stream)
        if array.size:
            array.copy_to_host(got, stream=external)

        def finish():
            external.synchronize()
            return got.copy()

        return peer.Reading(finish)

    def address(self, array):
        return array.__cuda_array_interface__["data"][0]

    def from_cai(self, source):
        return cuda.as_cuda_array(source)

    def used(self):
        cuda.current_context().deallocations.clear()
        return _used()

    def settle(self):
        context = cuda.current_context()
        context.deallocations.clear()
        getattr(context.memory_manager, "deallocations", context.deallocations).clear()


def _used():
    """The bytes of Numba's allocations, None where its memory manager does not list them."""
    manager = cuda.current_context().memory_manager
    listed = getattr(manager, "allocations", None)
    return None if listed is None else sum(memory.size for memory in listed.values())


def _version():
    try:
        import numba_cuda

        return f"{numba.__version__}, numba-cuda {numba_cuda.__version__}"
    except ImportError:
        return numba.__version__
