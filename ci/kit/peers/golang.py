"""Go: the functions of integration/golib, and what is alive there."""

import gc
import os

import simulator  # noqa: F401, loads the driver

import numpy as np

import arrowdevice

CUDA = 2  # the type of device

ext = arrowdevice.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "libgolib.so"))


def on_device(values):
    """An array of Go's on the GPU, complete."""
    array = ext.echo_array(values).to_device("cuda:0")
    array.synchronize()
    return array


def warm(values):
    """Leaves Go memory of the size of these values, which need not be those of a check: on the GPU, and for copies both ways. A
    driver may wait for held work to allocate some, or to free what there was before."""
    settle()
    numbers(on_device(values))


def enqueued_on_device(values):
    """An array of Go's on the GPU, whose copy may be pending."""
    return ext.echo_array(values).to_device("cuda:0")


def copy_on(values, stream):
    """An array of Go's on the GPU, as work on a stream that is a handle."""
    return ext.copy_to(ext.echo_array(np.ascontiguousarray(values)), CUDA, 0, stream)


def numbers(array):
    """The values of an array of Go's, which Go copies to the host. A copy of them, which keeps nothing."""
    return np.from_dlpack(array.to_host()).copy()


def address(array):
    """The address of an array of Go's. Later work of the legacy default stream waits for what is pending on the array."""
    return array.__cuda_array_interface__["data"][0]


def type_name(dtype):
    """The name of a peer's type, such as float32 of torch.float32."""
    text = str(dtype).rpartition(".")[2]
    return np.dtype(text).name


def open_gpu():
    on_device(np.arange(8)).close()
    settle()


def settle():
    """Completes deferred frees, and gives cached memory back."""
    ext.trim_gpu(0)
    ext.trim_gpu(0)  # the first call added to lists that it had already emptied


def device_bytes():
    return ext.read_gpu_stats(0)["device_bytes"]


def alive():
    """The counters that are not zero, of both languages."""
    gc.collect()
    ext.gc()
    settle()
    counters = {**ext._library.ask(".stats"), **ext.read_gpu_stats(0)}
    return {name: count for name, count in counters.items() if count}
