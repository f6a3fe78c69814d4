"""The driver API by itself: functions that the libraries under test do not offer, and
calls that an unrelated library in the same process would make."""

import contextlib
import ctypes
import threading

import simulator

NOT_READY = 600
NON_BLOCKING = 1  # for stream(): does not wait for the legacy default stream, nor the other way round
DISABLE_TIMING = 2

MEMORY_TYPE = 2  # an attribute of pointers
HOST = 1  # a memory type

handle, address, size = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t
_HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Error(Exception):
    def __init__(self, function, result):
        name = ctypes.c_char_p()
        simulator.library.cuGetErrorName(result, ctypes.byref(name))
        super().__init__(f"{function}: {(name.value or b'?').decode()}")
        self.result = result


def call(function, *arguments):
    result = getattr(simulator.library, function)(*arguments)
    if result:
        raise Error(function, result)


def ask(kind, function, *arguments):
    """The value that a function writes to its first argument."""
    out = kind()
    call(function, ctypes.byref(out), *arguments)
    return out.value


@contextlib.contextmanager
def current_primary_context(device=0):
    made = ask(handle, "cuDevicePrimaryCtxRetain", device)
    call("cuCtxPushCurrent_v2", handle(made))
    try:
        yield made
    finally:
        ask(handle, "cuCtxPopCurrent_v2")
        call("cuDevicePrimaryCtxRelease_v2", device)


@contextlib.contextmanager
def stream(flags=NON_BLOCKING):
    made = ask(handle, "cuStreamCreate", flags)
    try:
        yield made
    finally:
        call("cuStreamSynchronize", handle(made))
        call("cuStreamDestroy_v2", handle(made))


def record(event, stream):
    call("cuEventRecord", handle(event), handle(stream))


def wait(stream, event):
    """Makes a stream wait for an event."""
    call("cuStreamWaitEvent", handle(stream), handle(event), 0)


def is_complete(event):
    result = simulator.library.cuEventQuery(handle(event))
    if result not in (0, NOT_READY):
        raise Error("cuEventQuery", result)
    return result == 0


def copy_to_host(target, source, stream):
    """Fills an array of NumPy from device memory, as work on a stream."""
    call("cuMemcpyDtoHAsync_v2", handle(target.ctypes.data), address(source), size(target.nbytes), handle(stream))


def pointer(attribute, value, kind=ctypes.c_uint64):
    """The driver's information about an address."""
    return ask(kind, "cuPointerGetAttribute", attribute, address(value))


class Gate:
    """Holds a stream back until it is opened, with any driver. Work queued behind it
    must not be waited for before."""

    def __init__(self, stream):
        self._opened = threading.Event()
        self._function = _HOST_FUNCTION(self._hold)
        call("cuLaunchHostFunc", handle(stream), self._function, None)

    def _hold(self, _):
        self._opened.wait()

    def open(self):
        self._opened.set()


@contextlib.contextmanager
def gate(stream):
    """A Gate at the present end of a stream, which is open and passed at the end."""
    g = Gate(stream)
    try:
        yield g
    finally:
        g.open()
        call("cuStreamSynchronize", handle(stream))
