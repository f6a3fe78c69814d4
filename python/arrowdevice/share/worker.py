"""The thread that opens, maps, retains and frees for the others, and the thread that ends what is not this package's.

Python runs signal handlers on the main thread, also between a call and the use of its result, which is lost if a handler raises, such
as KeyboardInterrupt. So what must not be lost is made on this thread, where no handler runs, and belongs to an object that is handed
over: once the object is gone, the thread frees what belongs to it. A finalizer in Python would not do, as a handler can end it, too.

A handler may call the package while it has interrupted a function of threading that holds the lock of this module. So this thread and
those that it starts are made by _thread, and call no function that takes that lock.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import sys
import weakref
from queue import SimpleQueue

from .event import Event

_LAST = 10.0  # seconds for what a thread does at the end of Python


class _Call:
    """A request of a call, and the queue for its result."""

    __slots__ = ("_function", "_arguments", "_reply")

    def __init__(self, function, arguments, reply):
        self._function, self._arguments, self._reply = function, arguments, reply

    def do(self):
        try:
            result = self._function(*self._arguments)
        except BaseException as error:
            self._answer(None, error)
        else:
            self._answer(result, None)

    def _answer(self, *answer):
        """It drops the arguments first, so that the last reference to them is the caller's, and the queue, as an error refers to this
        object."""
        reply = self._reply
        self._function = self._arguments = self._reply = None
        reply.put(answer)


class _End(weakref.ref):
    """What is to be called after the end of an object: functions and their arguments."""

    __slots__ = ("calls", "ends")

    def do(self):
        while self.calls:
            function, *arguments = self.calls.pop()
            try:
                function(*arguments)
            except BaseException:  # the others are called nevertheless
                with contextlib.suppress(BaseException):
                    sys.excepthook(*sys.exc_info())
        self.ends.pop(id(self), None)  # here, as the child of a fork meanwhile does the other calls


class Worker:
    """Calls functions in the order of the requests. It has no lock that a handler could leave locked. The queue is written in C, and so
    is what puts an _End there."""

    def __init__(self):
        self._reset()

    def _reset(self):
        self._queue, self._ends = SimpleQueue(), {}
        self._thread, self._unclaimed = None, [True]
        self._is_started = self.has_ended = False

    def run(self, function, *arguments):
        """The result of a function, which the thread calls. If a handler raises in the caller meanwhile, the function is called
        nevertheless, and its result dropped."""
        if self._thread == _thread.get_ident() or sys.is_finalizing():  # at the end of Python, only the caller still runs
            return function(*arguments)
        self.start()
        result, error = self.request(function, *arguments).get()
        if error is None:
            return result
        try:
            raise error
        finally:
            error = None  # which refers to this frame

    def start(self):
        """Starts the thread, if it does not run."""
        if self._thread is None and not sys.is_finalizing():
            _thread.start_new_thread(self._run, (self._unclaimed,))
            self._is_started = True

    def request(self, function, *arguments):
        """Has the thread call a function, once it was started, and returns the queue for the result and the error."""
        reply = SimpleQueue()
        self._queue.put(_Call(function, arguments, reply))
        return reply

    def at_end(self, of):
        """The list of what the thread calls once an object is gone, the last one first: tuples of a function and arguments, which
        must not refer to the object. The thread calls this method as well."""
        return self._watch(of, [])

    def _watch(self, of, calls):
        end = _End(of, self._queue.put)
        end.calls, end.ends = calls, self._ends
        self._ends[id(end)] = end
        return calls

    def _run(self, unclaimed):
        try:
            unclaimed.pop()
        except IndexError:  # another thread was started as well, and was first
            return
        self._thread = _thread.get_ident()
        while True:
            self._queue.get().do()  # no variable keeps a result

    def finish(self):
        """Waits, but not for ever, until the thread has done what it was asked for, and has it do nothing else: where Python ends a thread
        that is in a function of C++, this ends the process by a signal."""
        if self._is_started:
            done = Event()
            self.request(self._end, done)
            done.wait(_LAST)
        self.has_ended = True

    def _end(self, done):
        self.has_ended = True
        done.set()
        Event().wait()

    def after_fork(self):
        """The child has no thread. It frees its copies of what the parent had, and forgets the requests of the parent. It leaves the
        parent's queue alone, which is locked for ever if the parent's thread waited for it."""
        ends = self._ends.values()
        self._reset()
        for end in ends:
            of = end()
            if of is None:
                self._queue.put(end)
            else:
                self._watch(of, end.calls)


# The releaser ends what programs have handed over: release callbacks and finalizers of others, which may wait for a lock that a caller of
# this package holds. So no such code runs on the worker or the loop, and nobody waits for the releaser, except in Shared.wait().
worker, releaser = Worker(), Worker()
for _each in (worker, releaser):
    os.register_at_fork(after_in_child=_each.after_fork)
atexit.register(releaser.finish)
