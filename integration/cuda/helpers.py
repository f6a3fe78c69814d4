"""Helpers of several test modules."""

import threading

import numpy as np
from numba import cuda


def pinned(values):
    """A copy in page-locked memory."""
    values = np.asarray(values)
    array = cuda.pinned_array(values.shape, values.dtype)
    array[:] = values
    return array


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
