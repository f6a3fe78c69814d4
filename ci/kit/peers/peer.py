"""What the checks need of a library."""

import contextlib
import itertools

import driver
import simulator

import numpy as np

import work

_STREAMS = 4  # of a peer's own: with few, none shares a queue of the hardware with another

TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]


class Reading:
    """Values that the library reads as work on a stream."""

    def __init__(self, finish):
        self._finish = finish

    def result(self):
        """The values, as soon as they are there."""
        return self._finish()


class Peer:
    """A library. Arrays are the library's own, streams are objects of its own, which do not wait for the legacy default stream
    and live as long as the process."""

    version = ""
    protocols = ("dlpack", "cai", "arrow")
    types = TYPES

    # Whether it takes part in the CUDA Array Interface's order of streams: as the producer, by naming a stream, and as the
    # consumer, by waiting for it.
    names_stream = follows_stream = True
    # Whether an array of the interface keeps its owner, and may be read-only.
    keeps_owner = takes_read_only = True
    # Whether a tensor of DLPack keeps the array itself, and not only its memory.
    tensor_keeps_array = True
    # Whether it takes memory of any alignment; whether it copies what it takes by the CUDA Array Interface.
    any_alignment, copies_interface = True, False
    # Whether an import by the CUDA Array Interface waits for the stream on the host.
    syncs_interface = False
    # The default stream, for pending.
    default = 1

    def __init__(self):
        self._kept = []
        self._streams = itertools.cycle([])

    def open(self):
        """Makes kernels and what else the library keeps."""
        self._streams = itertools.cycle([self.new_stream() for _ in range(_STREAMS)])
        stream = self.stream()
        array = self.pending(64, 5, stream)
        assert self.read(array, stream).result().tolist() == list(range(5, 69))

    def keep(self, *things):
        """Keeps what pending work needs until the check ends."""
        self._kept.extend(things)

    def forget(self):
        """Drops what a check needed, and completes what that leaves. The work may still be pending."""
        work.synchronize()
        self._kept.clear()
        work.forget()
        self.settle()

    def unkeep(self):
        """Drops the arrays of pending work at once: the library itself must keep what that needs."""
        self._kept.clear()

    def settle(self):
        """Completes what the library does later."""

    def used(self):
        """The bytes on the GPU that the library has in use; None if it does not say so."""
        return None

    def copies(self, protocol):
        return self.copies_interface and protocol != "dlpack"

    def waits_as(self, protocol):
        """Whether an import by a protocol, with the order of streams, waits on the host."""
        return self.syncs_interface and protocol != "dlpack"

    def stream(self):
        """One of a few streams, of which a check can have two at a time."""
        return next(self._streams)

    def new_stream(self):
        return work.stream()

    def handle(self, stream):
        return stream

    def on(self, stream):
        """Makes a stream the current one."""
        return contextlib.nullcontext()

    def array(self, values):
        """A complete array on the GPU."""
        raise NotImplementedError

    def pending(self, count, first, stream, held=None):
        """An array of int64, which work on a stream, held back before it begins, fills with the numbers from first on. Until then
        its elements are -1."""
        array = self.array(np.full(count, -1))
        work.fill(self.handle(stream), self.address(array), count, first, held)
        return array

    def read(self, array, stream, held=None):
        """A Reading of an array by work on a stream, held back before it begins. It does not keep the array."""
        raise NotImplementedError

    def wait(self, stream):
        """Waits for the work on a stream."""
        driver.call("cuStreamSynchronize", driver.handle(self.handle(stream)))

    def is_done(self, stream):
        """Whether the work on a stream has ended."""
        return simulator.library.cuStreamQuery(driver.handle(self.handle(stream))) == 0

    def every_other(self, array):
        """Every second element of an array."""
        return array[::2]

    def address(self, array):
        raise NotImplementedError

    def from_dlpack(self, source):
        raise NotImplementedError

    def from_cai(self, source):
        raise NotImplementedError
