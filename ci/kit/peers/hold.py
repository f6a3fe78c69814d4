"""Holds: work on a stream that ends when a check says so. What a stream has behind one is pending until then, however slow or
quick the machine is; and what waits for that work does not end before, which a check sees.

While work is held, nothing may wait for all work of the device:

- Memory of the device and of the host, streams, kernels and modules are made before, by making the same calls on other arrays:
  a driver may wait for the device to make them, and load a kernel at its first launch only.
- Nothing is freed: cuMemFree and cuMemFreeHost wait. Garbage is not collected meanwhile, unless a check asks for it.
- A stream may share a queue of the hardware with the held one, and then waits for it. There are 32 of them (child.py), and few
  streams (peer.py); a check without an order tries several.
"""

import ctypes
import gc
import itertools
import os
import threading
import time

import driver
import kernels
import simulator

OPENS_AFTER = 0.03  # seconds that a call has to end too early in

_FLAGS = 1024  # words; no check has so many holds
_LEAST = 64  # bytes for a semaphore, of which C libraries need 16 or 32

_count = itertools.count()
_flags = None  # words that the host writes and a kernel reads
_flags_at = 0  # their address on the GPU
_libc = None
_held = 0  # holds that are not open

how = ""  # holds are made


class Ended(AssertionError):
    """Work that was to be held has ended: a call has waited for it until it ended by itself."""


def begin():
    """Chooses how streams are held. KIT_HOLD=function is for the tests of that way."""
    global _flags, _flags_at, _libc, how
    reason = kernels.compile_all()
    if os.environ.get("KIT_HOLD") == "function" or (reason and not simulator.is_simulator):
        # The semaphores of C: a function of Python would need the GIL, which a call that waits may have.
        _libc = ctypes.CDLL(None)
        how = f"host functions ({reason})"
    elif simulator.is_simulator:
        how = "events of the simulator"
    else:
        mapped = 2
        at = driver.ask(driver.handle, "cuMemHostAlloc", driver.size(4 * _FLAGS), mapped)
        _flags = (ctypes.c_uint32 * _FLAGS).from_address(at)
        _flags_at = driver.ask(driver.address, "cuMemHostGetDevicePointer_v2", driver.handle(at), 0)
        how = "kernels"


class Hold:
    """Holds one stream. As a context, it is open at the end."""

    SECONDS = 15 if simulator.is_simulator else 3  # after which it opens by itself: a machine that runs tests may be busy

    def __init__(self, seconds=SECONDS):
        self._seconds = seconds
        self._event = driver.ask(driver.handle, "cuEventCreate", driver.DISABLE_TIMING)
        self._began = self._opened = None
        self._is_pending = None
        self._lock = threading.Lock()
        self._timer = self._opening = None
        k = next(_count) % _FLAGS
        if _libc is not None:
            self._semaphore = ctypes.create_string_buffer(_LEAST)
            _libc.sem_init(self._semaphore, 0, 0)
        elif _flags is not None:
            self._flag, self._flag_at = k, _flags_at + 4 * k
            _flags[k] = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.open()

    def __del__(self):
        driver.call("cuEventDestroy_v2", driver.handle(self._event))

    def begin(self, stream):
        """Holds later work of a stream, which is a handle."""
        if _flags is not None:
            kernels.launch("hold", stream, self._flag_at, int(self._seconds * 1e9))
            driver.record(self._event, stream)
        elif _libc is not None:
            function = ctypes.cast(_libc.sem_wait, ctypes.c_void_p)
            driver.call("cuLaunchHostFunc", driver.handle(stream), function, self._semaphore)
            _semaphores.append(self._semaphore)
            driver.record(self._event, stream)
        else:
            simulator.library.cudasim_event_hold(driver.handle(self._event))
            driver.record(self._event, stream)
        self._start()
        if _flags is None:
            self._timer = threading.Timer(self._seconds, self._give)
            self._timer.daemon = True
            self._timer.start()

    def begin_timed(self, is_pending):
        """Stands for work of a library that nobody can end. is_pending reports whether it has not ended."""
        self._is_pending = is_pending
        self._start()

    def _start(self):
        global _held
        self._began = time.monotonic()
        _held += 1
        gc.disable()

    def held(self):
        """Whether the work is held."""
        if self._began is None or self._opened is not None:
            return False
        return self._is_pending() if self._is_pending else not driver.is_complete(self._event)

    def check(self, what):
        """Raises an error if the work is not held any more, because something waited for it."""
        if not self.held():
            raise Ended(f"{what}, until the held work had ended after {self.milliseconds():.0f} ms")

    def milliseconds(self):
        """The time since the work is held."""
        return (time.monotonic() - self._began) * 1e3

    def open(self):
        """Lets the work go on."""
        global _held
        with self._lock:
            if self._began is None or self._opened is not None:
                return
            self._opened = time.monotonic()
            _held -= 1
            if not _held:
                gc.enable()
        if self._timer:
            self._timer.cancel()
        self._give()

    def _give(self):
        if self._is_pending:
            return
        if _flags is not None:
            _flags[self._flag] = 1
        elif _libc is not None:
            _libc.sem_post(self._semaphore)
        else:
            simulator.library.cudasim_event_fire(driver.handle(self._event))

    def open_soon(self):
        """Opens while this thread goes on."""
        if not self._is_pending:
            self._opening = threading.Timer(OPENS_AFTER, self.open)
            self._opening.start()

    def opened_during(self, wait, *arguments):
        """The result of a call that waits for the held work, which is opened meanwhile."""
        self.open_soon()
        return self.waited_for_by(wait, *arguments)

    def waited_for_by(self, wait, *arguments):
        """The result of a call that waits for the held work, and has it opened. A call that ends before has not waited."""
        try:
            result = wait(*arguments)
            if self.held():
                raise AssertionError(f"nothing waited for the held work: the values were there after {self.milliseconds():.0f} ms")
        finally:
            if self._opening:
                self._opening.cancel()
        if self._opened is None and not self._is_pending:
            raise Ended(f"the work ended by itself, after {self.milliseconds():.0f} ms: the call let no thread of Python open it")
        return result


_semaphores = []  # of host functions, for the life of the process
