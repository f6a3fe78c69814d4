"""Go on the other side: arrays that it copies to the device, and the memory that it
keeps there.

Go loads the driver by the path that simulator.py loaded it by, and so has the same
copy of it: its devices, streams and events are those of Numba and nanoarrow.
"""

import threading

import simulator  # noqa: F401, loads the driver

import extension
import golib
import numpy as np
from nanoarrow.device import c_device_array
from numba import cuda

import abi
import driver
import machines
import nano

CASES = [case["name"] for case in golib.ext.cases()["cases"]]
VARIANTS = golib.ext.cases()["variants"]

# nanoarrow 0.6.0 can hold these and hand them on, but does not know the types.
UNKNOWN = ("decimal32", "decimal64", "list_view", "large_list_view")
# Of these it can neither: it dies when it copies or exports them, on the CPU too.
VIEWS = ("binary_view", "utf8_view")
HANDED_ON = [name for name in CASES if name not in VIEWS]
LOOKED_INTO = [name for name in HANDED_ON if name not in UNKNOWN]
# For tests on every machine: one of each array layout.
SOME_PLAIN = ["null", "bool", "int64", "decimal128", "list", "fixed_size_list", "dictionary_ordered"]
SOME_STRINGS = ["utf8", "large_binary", "struct_nested", "map", "dictionary_int8"]
SOME_STRINGS += ["sparse_union", "dense_union", "run_end_encoded_int32"]


# See test_nanoarrow_waits.py: where copies to pageable memory are late, nanoarrow
# reads sizes too early.
SIZES_CAN_BE_READ = [name for name in machines.MACHINES if name != "random"]


def gpus():
    return range(len(cuda.gpus))


def open_gpus():
    """The objects of an open GPU stay for the life of the process: a reference to the
    primary context, a stream, and the pool that the first allocation makes."""
    for gpu in gpus():
        golib.ext.gpu_name(gpu)
        with golib.GoArray.make("int32", "valid") as host:
            host.copy_to(abi.CUDA, gpu).release()
    settle()


def settle():
    """Completes frees that wait for the work of the GPUs, and gives cached memory
    back."""
    for gpu in gpus():
        golib.ext.trim_gpu(gpu)
        golib.ext.trim_gpu(gpu)  # the first call added to lists that it had already emptied


def alive():
    """Live objects of Go and of its functions in Python, and live memory of the GPUs: those that are not zero."""
    settle()
    _counting[:] = [releases for releases in _counting if not releases.count]
    counters = [extension.alive(), *(golib.ext.read_gpu_stats(gpu) for gpu in gpus())]
    return [{name: count for name, count in counts.items() if count} for counts in counters]


def nothing():
    """What alive() returns if nothing is."""
    return [{}] * (1 + len(gpus()))


def on_device(name, variant, device=0, stream=0, kind=golib.GoArray):
    """A case that Go copies to a GPU."""
    with kind.make(name, variant) as host:
        return host.copy_to(abi.CUDA, device, stream)


_counting = []  # release callbacks must live until they are called


class Handed:
    """The array of a producer, for one consumer: counts its releases. What it was copied from lives until it is released."""

    def __init__(self, source, copied_from=None):
        self._schema, self._array = source.__arrow_c_device_array__()
        self._releases = abi.count_releases(self.struct)
        self._releases.copied_from = copied_from
        _counting.append(self._releases)

    @property
    def struct(self):
        return abi.ArrowDeviceArray.from_address(abi.capsule_pointer(self._array, "arrow_device_array"))

    @property
    def releases(self):
        return self._releases.count

    def wait(self):
        nano.wait(nano.resolve(self.struct.device_type, self.struct.device_id), self.struct.sync_event)

    def __arrow_c_device_array__(self, requested_schema=None):
        return self._schema, self._array


class Place:
    """The location that an object reports for its memory."""

    def __init__(self, source):
        _, capsule = source.__arrow_c_device_array__()
        struct = abi.ArrowDeviceArray.from_address(abi.capsule_pointer(capsule, "arrow_device_array"))
        self.device = struct.device_type, struct.device_id
        self.buffers = abi.buffer_addresses(struct.array)
        self.shape = struct.array.length, struct.array.offset
        # nanoarrow hands on the pointer; Go may have it point to a copy of the event.
        self.event = struct.sync_event and abi.ctypes.c_void_p.from_address(struct.sync_event).value

    def __eq__(self, other):
        return vars(self) == vars(other)

    def __repr__(self):
        return repr(vars(self))


def copy_by_nanoarrow(array, stream):
    """From a device to the host. nanoarrow does not wait for the event of the array
    that it copies, nor always for its own copy."""
    nano.wait(nano.resolve(array.device_type_id, array.device_id), nano.sync_event(array), stream)
    back = nano.copy(array, nano.resolve(nano.CPU, 0), stream)
    driver.call("cuStreamSynchronize", driver.handle(stream))
    return back


def handed_by_nanoarrow(host, stream, device_type=abi.CUDA, device=0):
    """The result of nanoarrow's C library when it copies an array of the host to a
    device. nanoarrow in Python would hand on a copy of the structs, which keeps the
    array by its buffers: without any, the event is destroyed too early (nanoarrow
    0.6.0)."""
    with nano.View(host) as view:
        # A driver may read pageable memory when the call has returned.
        return Handed(view.copy(nano.resolve(device_type, device), stream), copied_from=host)


def copied_by_nanoarrow(name, variant, stream, device_type=abi.CUDA, device=0, kind=golib.GoArray):
    """A case that nanoarrow copies to a device, after Go made it on the host."""
    with kind.make(name, variant) as go:
        host = c_device_array(go)
    return handed_by_nanoarrow(host, stream, device_type, device)


def difference(host, name, variant, kind=golib.GoArray):
    """The difference between an array in memory of the host and a case: an empty text
    if there is none."""
    with kind.make(name, variant) as want, kind.from_arrow(host, full_validation=True) as got:
        return got.difference(want)


def device_difference(go, name, variant):
    """The same for an object of Go's on a device."""
    with type(go).make(name, variant) as want, go.copy_to_host() as got:
        return got.difference(want)


class opening:
    """Opens a gate while the caller waits behind it, on another thread: at any time,
    the result must not depend on it."""

    def __init__(self, gate, delay=0.002):
        self._timer = threading.Timer(delay, gate.open)

    def __enter__(self):
        self._timer.start()

    def __exit__(self, *_):
        self._timer.join()


# Arrays of NumPy and others, as arguments of Go's functions.


def copied(values, device=0):
    """An arrowdevice.Array on a GPU, which may be copied later."""
    return golib.ext.echo_array(values).to_device(f"cuda:{device}")


def numbers(array):
    """The values of an arrowdevice.Array, which Go copies to the host if they are not there."""
    return np.from_dlpack(array.to_host())
