"""The threads of all openers and owners of this process: one waits for sockets, another one ends what consumers have released."""

from __future__ import annotations

import _thread
import contextlib
import os
import queue
import selectors
import sys
import time

from . import cdata
from .worker import releaser

_SWEEP = 0.1  # seconds between looks at capsules that no consumer has taken


class Loop:
    """Calls functions when files can be read, or when it is too late for that. All but start() and call() belongs to its thread. No
    signal handler runs on the threads that call those."""

    def __init__(self):
        self._reset()

    def _reset(self):
        self._thread = self._collector = None
        self._calls = queue.SimpleQueue()
        self._late = {}  # when and what to call, by the file

    def start(self):
        """Starts the threads, and the releaser, if they do not run. After an error it can be called again. The worker calls it."""
        releaser.start()
        if self._collector is None:
            cdata.prepare()
            self._collector = _thread.start_new_thread(cdata.collect, ())
        if self._thread is None:
            self._begin()

    def _begin(self):
        with contextlib.ExitStack() as undo:
            self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            undo.callback(os.close, self._wake)
            self._selector = undo.enter_context(selectors.DefaultSelector())
            self._selector.register(self._wake, selectors.EVENT_READ, self._woken)
            thread = _thread.start_new_thread(self._run, ())
            undo.pop_all()
        self._thread = thread

    def call(self, function, *arguments):
        """Calls a function on the thread, soon."""
        self._calls.put((function, arguments))
        os.eventfd_write(self._wake, 1)

    def watch(self, file, ready, seconds=None, late=None):
        """Calls ready when a file can be read, and late once after some seconds unless forget(file) came first."""
        self._selector.register(file, selectors.EVENT_READ, ready)
        if seconds is not None:
            self._late[file] = (time.monotonic() + seconds, late)

    def forget(self, file):
        """Ends watch."""
        self._late.pop(file, None)
        try:
            self._selector.unregister(file)
        except (KeyError, ValueError):  # it was not watched
            pass

    def _woken(self):
        os.eventfd_read(self._wake)

    def _timeout(self, others):
        times = [when - time.monotonic() for when, _ in self._late.values()]
        if others:
            times.append(_SWEEP)
        return max(min(times), 0) if times else None

    def _run(self):
        while True:
            for key, _ in self._selector.select(self._timeout(cdata.sweep())):
                self._guarded(key.data)
            while not self._calls.empty():
                function, arguments = self._calls.get()
                self._guarded(function, *arguments)
            for file, (when, late) in list(self._late.items()):
                if when <= time.monotonic() and self._late.pop(file, None):
                    self._guarded(late)

    def _guarded(self, function, *arguments):
        try:
            function(*arguments)
        except Exception:  # for example, no memory is left: the others go on
            sys.excepthook(*sys.exc_info())

    def after_fork(self):
        """The child has no thread, and no right to change what the files of the parent wait for."""
        if self._thread is not None:
            self._selector.close()
            os.close(self._wake)
        self._reset()


loop = Loop()
os.register_at_fork(after_in_child=loop.after_fork)
