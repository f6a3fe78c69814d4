"""Libraries that own streams and events, Numba and cuda-core, by what the tests of events ask of them."""

import contextlib
from typing import Callable, NamedTuple

import numpy as np
from numba import cuda

import cudacore
from helpers import pinned


class Event(NamedTuple):
    handle: int
    is_done: Callable
    sync: Callable


def handle_of(made):
    """The driver's handle of a stream or an event of Numba. That of numba-cuda is an object of cuda-bindings."""
    return getattr(made.handle, "value", None) or int(made.handle)


class _Integers:
    """Integers at an address, by the CUDA array interface."""

    def __init__(self, address, count):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<i8", "data": (address, False), "version": 3}


class Numba:
    """Numba with a stream of its own."""

    def __init__(self):
        self._stream = cuda.stream()
        self.stream = handle_of(self._stream)
        self._sources = []

    def close(self):
        self._stream.synchronize()

    @contextlib.contextmanager
    def memory(self, count, kind="device"):
        """The address of memory for integers, until the end."""
        make = {"device": cuda.device_array, "managed": cuda.managed_array, "pinned": cuda.pinned_array}[kind]
        array = make(count, "i8")
        yield array.ctypes.data if kind == "pinned" else array.device_ctypes_pointer.value

    def write(self, address, values):
        """Enqueues a copy to an address, and returns an event behind it."""
        self._sources.append(pinned(values))
        self._view(address, len(values)).copy_to_device(self._sources[-1], stream=self._stream)
        return self.record()

    def read(self, address, count):
        """Enqueues a copy of integers, and returns the page-locked array that it fills."""
        got = pinned(np.zeros(count, "i8"))
        self._view(address, count).copy_to_host(got, stream=self._stream)
        return got

    def record(self):
        made = cuda.event(timing=False)
        made.record(self._stream)
        return Event(handle_of(made), made.query, made.synchronize)

    def _view(self, address, count):
        return cuda.as_cuda_array(_Integers(address, count), sync=False)


class Core:
    """cuda-core with a stream of its own."""

    def __init__(self):
        self._device = cudacore.use_device(0)
        self._stream = self._device.create_stream()
        self.stream = int(self._stream.handle)

    def close(self):
        self._stream.sync()
        self._stream.close()

    @contextlib.contextmanager
    def memory(self, count, kind="device"):
        resource = {
            "device": lambda: self._device.memory_resource,
            "managed": cudacore.core.ManagedMemoryResource,
            "pinned": cudacore.core.PinnedMemoryResource,
        }[kind]()
        with cudacore.closing(resource.allocate(count * 8, stream=self._stream), self._stream) as buffer:
            yield int(buffer.handle)

    def write(self, address, values):
        source, _ = cudacore.pinned(values)
        self._buffer(address, len(values)).copy_from(source, stream=self._stream)
        return self.record(source)

    def read(self, address, count):
        target, got = cudacore.pinned(np.zeros(count, "i8"))
        self._buffer(address, count).copy_to(target, stream=self._stream)
        return got

    def record(self, *keep):
        made = self._stream.record()
        return Event(int(made.handle), lambda keep=keep: made.is_done, made.sync)

    def _buffer(self, address, count):
        return cudacore.core.Buffer.from_handle(address, count * 8)


PEERS = {"numba": Numba, **({"core": Core} if cudacore.is_there else {})}
