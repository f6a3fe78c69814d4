"""CuPy, with kernels of its own if it can compile them."""

import contextlib

import child
import simulator

import cupy
import numpy as np

import peer

_CODE = r"""
extern "C" __global__ void fill(long long* out, long long n, long long first) {
  for (long long i = threadIdx.x; i < n; i += blockDim.x) out[i] = first + i;
}
extern "C" __global__ void copy(const unsigned char* in, unsigned char* out, long long n) {
  for (long long i = threadIdx.x; i < n; i += blockDim.x) out[i] = in[i];
}
"""


class Peer(peer.Peer):
    name = "cupy"
    syncs_interface = True  # unless CUPY_CUDA_ARRAY_INTERFACE_SYNC is 0

    def __init__(self):
        super().__init__()
        if simulator.is_simulator:
            raise child.Skip("CuPy does not run on the simulator")
        if cupy.cuda.runtime.getDeviceCount() == 0:
            raise child.Skip("CuPy finds no GPU")
        self.version = f"CuPy {cupy.__version__}, runtime {cupy.cuda.runtime.runtimeGetVersion()}"
        self.default = cupy.cuda.Stream.null
        self._kernels = None

    def open(self):
        try:
            module = cupy.RawModule(code=_CODE)
            self._kernels = module.get_function("fill"), module.get_function("copy")
            super().open()
        except Exception as e:
            # Its compiler may be missing: then the kernels are the driver's, on CuPy's arrays and streams.
            print(f"cupy: no kernels of its own, but those of the driver: {type(e).__name__}: {child.first_line(e)}")
            self._kernels = None
            super().open()

    def new_stream(self):
        return cupy.cuda.Stream(non_blocking=True)

    def handle(self, stream):
        return stream.ptr

    def on(self, stream):
        return contextlib.nullcontext() if stream is None else stream

    def array(self, values):
        values = np.ascontiguousarray(values)
        array = cupy.empty(values.shape, values.dtype)
        if values.size:
            array.set(values)
        cupy.cuda.get_current_stream().synchronize()
        return array

    def pending(self, count, first, stream, held=None):
        with self.on(stream):  # whose memory it is, also if it is dropped while the kernel runs
            if self._kernels is None:
                return super().pending(count, first, stream, held)
            array = self.array(np.full(count, -1))
            if held is not None:
                held.begin(stream.ptr)
            self._kernels[0]((1,), (256,), (array, np.int64(count), np.int64(first)))
        return array

    def read(self, array, stream, held=None):
        with self.on(stream):
            out = cupy.empty(array.shape, array.dtype)
            if held is not None:
                held.begin(stream.ptr)
            if self._kernels is not None and array.nbytes:
                self._kernels[1]((1,), (1024,), (array, out, np.int64(array.nbytes)))
            elif array.nbytes:
                out.data.copy_from_device_async(array.data, array.nbytes, stream)

        def finish():
            stream.synchronize()
            got = out.get(stream=stream)
            stream.synchronize()
            return got

        return peer.Reading(finish)

    def used(self):
        return cupy.get_default_memory_pool().used_bytes()

    def address(self, array):
        return array.data.ptr

    def from_dlpack(self, source):
        return cupy.from_dlpack(source)

    def from_cai(self, source):
        return cupy.asarray(source)
