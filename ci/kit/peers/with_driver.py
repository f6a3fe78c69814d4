"""The driver by itself: memory, streams and kernels without a library, with all the protocols. It is there on every machine."""

import ctypes

import driver
import simulator

import numpy as np

import hold
import peer
import tensors
import work


class Array:
    """Memory of the driver, or of an owner, with DLPack and the CUDA Array Interface. stream is the one with the last work."""

    def __init__(self, shape, dtype, address=None, owner=None, strides=None, stream=None):
        self.shape, self.dtype, self.stream, self._owner = tuple(shape), np.dtype(dtype), stream, owner
        self.strides = strides
        self.size = int(np.prod(self.shape, dtype="i8"))
        self.nbytes = self.size * self.dtype.itemsize
        self._owned = address is None
        if self._owned:
            address = driver.ask(driver.address, "cuMemAlloc_v2", driver.size(max(self.nbytes, 1)))
            _alive[address] = self.nbytes
        self.address = address

    def __del__(self):
        if self._owned and _alive.pop(self.__dict__.get("address"), None) is not None:
            driver.call("cuMemFree_v2", driver.address(self.address))

    def __len__(self):
        return self.shape[0]

    def every_other(self):
        return Array([self.size // 2], self.dtype, self.address, self, strides=[2], stream=self.stream)

    def __dlpack_device__(self):
        return tensors.CUDA, 0

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if stream != -1 and self.stream is not None:
            order(self.stream, stream or 1)
        strides = self.strides or [int(np.prod(self.shape[i + 1 :], dtype="i8")) for i in range(len(self.shape))]
        return tensors.export(self.address, self.shape, strides, self.dtype, self, max_version is not None and max_version >= (1, 0))

    @property
    def __cuda_array_interface__(self):
        strides = self.strides and tuple(n * self.dtype.itemsize for n in self.strides)
        data = (self.address if self.size else 0, False)
        return {"shape": self.shape, "typestr": self.dtype.str, "data": data, "version": 3, "strides": strides, "stream": self.stream}


def zeros(count, stream):
    """An array of int64 whose work is that of a stream."""
    array = Array([count], "i8", stream=stream)
    driver.call("cuMemsetD8_v2", driver.address(array.address), ctypes.c_ubyte(0), driver.size(array.nbytes))
    driver.call("cuCtxSynchronize")
    return array


_alive = {}  # the bytes of memory by its address


def order(first, second):
    """Makes later work of a stream wait for the present work of another one."""
    if first == second:
        return
    event = work.record(first)
    driver.call("cuStreamWaitEvent", driver.handle(second), event, 0)
    driver.call("cuEventDestroy_v2", event)


class Peer(peer.Peer):
    name = "driver"

    def __init__(self):
        super().__init__()
        number = driver.ask(ctypes.c_int, "cuDriverGetVersion")
        self.version = f"driver of CUDA {number // 1000}.{number % 1000 // 10}, held by {hold.how}"
        self._current = None
        if simulator.is_simulator:
            self.version += ", simulated"

    def used(self):
        return sum(_alive.values())

    def on(self, stream):
        return _On(self, stream)

    @property
    def current(self):
        return self._current or 1

    def array(self, values):
        values = np.ascontiguousarray(values)
        array = Array(values.shape, values.dtype)
        if values.nbytes:
            driver.call("cuMemcpyHtoD_v2", driver.address(array.address), driver.handle(values.ctypes.data), driver.size(values.nbytes))
        return array

    def pending(self, count, first, stream, held=None):
        array = super().pending(count, first, stream, held)
        array.stream = stream
        return array

    def read(self, array, stream, held=None):
        got = work.pinned(np.zeros(array.shape, array.dtype).reshape(-1))
        stream = stream or self.current
        if held is not None:
            held.begin(stream)
        if array.nbytes:
            driver.copy_to_host(got, array.address, stream)
        shape = array.shape

        def finish():
            driver.call("cuStreamSynchronize", driver.handle(stream))
            return got.reshape(shape).copy()

        return peer.Reading(finish)

    def every_other(self, array):
        return array.every_other()

    def address(self, array):
        return array.address

    def from_dlpack(self, source):
        """Work on the current stream comes after the producer's."""
        assert tuple(source.__dlpack_device__()) == (tensors.CUDA, 0)
        taken = tensors.Taken(source.__dlpack__(stream=self.current, max_version=(1, 1)))
        return Array(taken.shape, taken.dtype, taken.address, taken)

    def from_cai(self, source):
        interface = source.__cuda_array_interface__
        if interface.get("stream") is not None:
            order(interface["stream"], self.current)
        return Array(interface["shape"], interface["typestr"], interface["data"][0], source)


class _On:
    def __init__(self, owner, stream):
        self._owner, self._stream = owner, stream

    def __enter__(self):
        self._before, self._owner._current = self._owner._current, self._stream

    def __exit__(self, *_):
        self._owner._current = self._before
