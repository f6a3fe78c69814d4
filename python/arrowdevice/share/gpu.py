"""Memory of a GPU of another process, by the CUDA driver: it is in the primary context, which cuda-core, Numba, CuPy and PyTorch use
as well."""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import functools
import os
import threading
import warnings

from .errors import BadTicket, NotSupported

_LAZY_PEER_ACCESS = 1

_handle, _pointer = ctypes.c_void_p, ctypes.c_uint64


class _Handle(ctypes.Structure):
    """A CUipcMemHandle or CUipcEventHandle, which the driver takes by value."""

    _fields_ = [("reserved", ctypes.c_ubyte * 64)]


class DriverError(OSError):
    """A call of the CUDA driver that failed. errno is None."""


@functools.lru_cache(maxsize=None)
def _driver():
    path = os.environ.get("CDEVICE_CUDA_DRIVER") or os.environ.get("NUMBA_CUDA_DRIVER") or "libcuda.so.1"
    try:
        driver = ctypes.CDLL(path)
    except OSError as error:
        raise NotSupported(f"share: open: there is no CUDA driver: {error}") from None
    driver.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, _Handle, ctypes.c_uint]
    driver.cuIpcOpenEventHandle.argtypes = [ctypes.c_void_p, _Handle]
    driver.cuIpcCloseMemHandle.argtypes = [_pointer]
    if result := driver.cuInit(0):
        raise NotSupported(f"share: open: cuInit: {_name(driver, result)}")
    return driver


def _name(driver, result):
    name = ctypes.c_char_p()
    driver.cuGetErrorName(result, ctypes.byref(name))
    return (name.value or b"error %d" % result).decode()


def _call(function, *arguments):
    driver = _driver()
    if result := getattr(driver, function)(*arguments):
        raise DriverError(f"share: open: {function}: {_name(driver, result)}")


def _ask(kind, function, *arguments):
    out = kind()
    _call(function, ctypes.byref(out), *arguments)
    return out


def find(uuid):
    """The GPU with a UUID: ordinals differ between processes."""
    for ordinal in range(_ask(ctypes.c_int, "cuDeviceGetCount").value):
        device = _ask(ctypes.c_int, "cuDeviceGet", ordinal).value
        if bytes(_ask(ctypes.c_ubyte * 16, "cuDeviceGetUuid_v2", device)) == uuid:
            return Opened(ordinal, device)
    raise NotSupported(f"share: open: the memory belongs to GPU-{uuid.hex()}, which is not visible to this process")


# Memory that is open, and how often: the driver opens an allocation once for a process.
_lock = threading.Lock()
_open: dict[tuple[int, bytes], list[int]] = {}
_lost: list[object] = []  # connections of memory that was not closed


class Opened:
    """Memory and an event of another process on a GPU of this one."""

    def __init__(self, ordinal, device):
        self.ordinal, self._device = ordinal, device
        self.addresses, self._handles, self._event, self._context = [], [], None, None

    def open(self, ticket):
        """Opens the regions of a ticket, and its event."""
        self._context = _ask(_handle, "cuDevicePrimaryCtxRetain", self._device)
        with _current(self._context):
            for i, region in enumerate(ticket.regions):
                if not region.handle:
                    raise BadTicket(f"share: ticket: regions[{i}].handle = none, want one for memory of a GPU")
                try:
                    self.addresses.append(self._memory(region.handle))
                    _check_size(self.addresses[i], region.size, i)
                except DriverError as error:
                    other = "; the owner is in another PID namespace, and CUDA IPC needs one for both" if ticket.in_other_pids() else ""
                    raise DriverError(f"{error}: regions[{i}]{other}") from None
            if ticket.event:
                self._event = _ask(_handle, "cuIpcOpenEventHandle", _Handle.from_buffer_copy(ticket.event))

    def _memory(self, handle):
        with _lock:
            entry = _open.get((self.ordinal, handle))
            if entry is None:
                out = _ask(_pointer, "cuIpcOpenMemHandle_v2", _Handle.from_buffer_copy(handle), _LAZY_PEER_ACCESS)
                entry = _open[self.ordinal, handle] = [out.value, 0]
            entry[1] += 1
            self._handles.append(handle)
            return entry[0]

    def event_address(self):
        """The address of the CUevent, or None if the memory is ready."""
        return ctypes.addressof(self._event) if self._event else None

    def close(self, done, outcome):
        """Closes the memory after the pending work of this process, and calls done(outcome), on a thread of its own: it waits for
        the GPU."""
        if self._context is None:
            done(outcome)
            return
        try:
            _thread.start_new_thread(self._close, (done, outcome))
        except RuntimeError:  # the interpreter is at its end, and so is the memory; or no thread is left
            _lost.append(done)

    def _close(self, done, outcome):
        """Without done(), the owner waits for the exit of this process: so it does for memory that the driver does not close."""
        try:
            with _current(self._context):
                _call("cuCtxSynchronize")
                if self._event:
                    _call("cuEventDestroy_v2", self._event)
                for handle in self._handles:
                    with _lock:
                        entry = _open[self.ordinal, handle]
                        entry[1] -= 1
                        if entry[1] == 0:
                            _call("cuIpcCloseMemHandle", entry[0])
                            del _open[self.ordinal, handle]
            _call("cuDevicePrimaryCtxRelease_v2", self._device)
        except DriverError as error:
            _lost.append(done)
            warnings.warn(f"memory of the GPU stays open until this process exits: {error}", ResourceWarning, stacklevel=1)
            return
        done(outcome)


def _check_size(address, size, i):
    """Refuses a region that is larger than the memory that was opened: consumers would access other memory."""
    has = ctypes.c_size_t()
    _call("cuMemGetAddressRange_v2", None, ctypes.byref(has), _pointer(address))
    if has.value < size:
        raise BadTicket(f"share: ticket: regions[{i}].size = {size}, want at most {has.value}, the size of the memory")


@contextlib.contextmanager
def _current(context):
    """Makes a context current on this thread."""
    _call("cuCtxPushCurrent_v2", context)
    try:
        yield
    finally:
        _ask(_handle, "cuCtxPopCurrent_v2")
