"""What several test modules need."""

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
    """work(i) on each of so many threads, which have a context and begin together."""
    errors, start = [], threading.Barrier(count)

    def run(i):
        try:
            cuda.current_context()
            start.wait()
            work(i)
        except BaseException as e:
            errors.append(repr(e))

    threads = [threading.Thread(target=run, args=[i]) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
