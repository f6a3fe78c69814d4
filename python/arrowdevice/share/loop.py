"""The threads of all openers and owners of this process: one waits for sockets, the other ends what consumers have released."""

from __future__ import annotations

import os
import queue
import selectors
import sys
import threading
import time

from . import cdata

_SWEEP = 0.1  # seconds between looks at capsules that no consumer has taken


class Loop:
    """Calls functions when files can be read, or when it is too late for that. All but start() and call() belongs to its thread."""

    def __init__(self):
        self._start = threading.Lock()
        self._reset()

    def _reset(self):
        self._thread = self._collector = None
        self._calls = queue.SimpleQueue()
        self._late = {}  # when and what to call, by the file

    def start(self):
        """Starts the threads, if they do not run. After an error it can be called again."""
        if self._thread is not None:
            return
        with self._start:
            if self._collector is None:
                cdata.prepare()
                thread = threading.Thread(target=cdata.collect, name="arrowdevice.share release", daemon=True)
                thread.start()
                self._collector = thread
            if self._thread is None:
                self._begin()

    def _begin(self):
        wake, unowned = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), [True]
        selector = thread = None
        try:
            selector = selectors.DefaultSelector()
            selector.register(wake, selectors.EVENT_READ, self._woken)
            self._wake, self._selector = wake, selector
            thread = threading.Thread(target=self._run, args=(unowned,), name="arrowdevice.share", daemon=True)
            thread.start()
        except BaseException:
            if not _first(unowned):  # Ctrl-C, once the thread ran
                self._thread = thread
                raise
            if selector is not None:
                selector.close()
            os.close(wake)
            raise
        self._thread = thread

    def call(self, function, *arguments):
        """Calls a function on the thread, soon."""
        self.start()
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

    def _run(self, unowned):
        if not _first(unowned):
            return
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
        self._start = threading.Lock()
        self._reset()


def _first(unowned):
    """Reports whether this thread is the first to take the only element."""
    try:
        return unowned.pop()
    except IndexError:
        return False


loop = Loop()
os.register_at_fork(after_in_child=loop.after_fork)
