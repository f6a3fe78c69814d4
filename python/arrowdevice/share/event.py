"""An event that threads wait for."""

from __future__ import annotations

from _thread import allocate_lock


class Event:
    """A threading.Event that works on after a signal handler has raised in wait(). Each waiter has a lock of its own. A SimpleQueue
    would not do: in older versions of Python, its get() waits for ever where the time is over before it blocks."""

    def __init__(self):
        self._is_set, self._waiting = False, set()

    def set(self):
        self._is_set = True
        while True:
            try:
                lock = self._waiting.pop()
            except KeyError:
                return
            lock.release()

    def wait(self, timeout=None):
        """Reports whether it was set, at the latest after some seconds."""
        lock = allocate_lock()
        lock.acquire()
        self._waiting.add(lock)
        try:
            return self._is_set or lock.acquire(timeout=-1 if timeout is None else max(timeout, 0)) or self._is_set
        finally:
            self._waiting.discard(lock)
