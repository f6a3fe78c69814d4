"""Functions of Go in Python: the library of integration/pyextension, which the Python package
arrowdevice loads. It has a Go runtime of its own beside golib's, and both have the same copy of the
driver.
"""

import simulator  # noqa: F401, loads the driver

import extension
import numpy as np
from extension import ext

import go


def open_gpus():
    """As go.open_gpus."""
    for gpu in go.gpus():
        ext.echo_array(np.arange(8)).to_device(f"cuda:{gpu}").close()
    settle()


def settle():
    """As go.settle."""
    for gpu in go.gpus():
        ext.trim_gpu(gpu)
        ext.trim_gpu(gpu)


def alive():
    """Live objects of both languages and live memory of the GPUs: those that are not zero."""
    settle()
    counters = [extension.alive(), *(ext.read_gpu_stats(gpu) for gpu in go.gpus())]
    return [{name: count for name, count in counts.items() if count} for counts in counters]


def nothing():
    """What alive() returns if nothing is."""
    return [{}] * (1 + len(go.gpus()))


def on_device(values, device=0):
    """An array of Go's on a GPU, which may be copied later."""
    return ext.echo_array(values).to_device(f"cuda:{device}")


def numbers(array):
    """The values of an array of Go's, which it copies to the host if they are not there."""
    return np.from_dlpack(array.to_host())
