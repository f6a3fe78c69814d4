"""Helpers of several test modules."""

import ctypes
import threading
import time

import nanoarrow
import numpy as np
from nanoarrow.c_schema import c_schema
from numba import cuda

import abi
import capsules


def pinned(values):
    """A copy in page-locked memory."""
    values = np.asarray(values)
    array = cuda.pinned_array(values.shape, values.dtype)
    array[:] = values
    return array


class Integers:
    """Integers at an address as an Arrow array, or as a batch of two such columns. event is behind the work that writes them."""

    def __init__(self, address, count, event, batch=False):
        self._address, self._count, self._batch = address, count, batch
        self._event = ctypes.c_void_p(event)

    def __arrow_c_device_array__(self, requested_schema=None):
        tree, schema = self._column(), nanoarrow.int64()
        if self._batch:
            tree = capsules.Tree(self._count, None, children=[self._column(), self._column()])
            schema = nanoarrow.struct({"a": nanoarrow.int64(), "b": nanoarrow.int64()})
        struct = capsules.export(tree, abi.CUDA, 0, ctypes.addressof(self._event))
        return capsules.Produced(c_schema(schema), struct).__arrow_c_device_array__()

    def _column(self):
        return capsules.Tree(self._count, None, self._address, keep=self)


def stays_pending(is_done):
    """Work that waits for held work is not done soon. Without the wait it is."""
    for _ in range(10):
        time.sleep(0.002)
        assert not is_done()


def on_threads(count, work):
    """work(i) on each of so many threads, which have a context and begin together.
    Numba frees dropped objects later, and then two threads at once take the same item
    from its list (IndexError: pop from an empty deque). So the objects are kept until
    the threads have ended."""
    errors, start = [], threading.Barrier(count)

    def run(i):
        try:
            cuda.current_context()
            start.wait()
            work(i)
        except BaseException as e:
            errors.append(repr(e))

    threads = [threading.Thread(target=run, args=[i]) for i in range(count)]
    with cuda.defer_cleanup():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
