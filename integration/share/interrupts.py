"""Exceptions that signal handlers raise while a function runs in package share: at each of its points, and at random times."""

import inspect
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import time

from arrowdevice import share

COUNT = int(os.environ.get("SHARE_INTERRUPTS", 60))  # of each test of random times
_PACKAGE = str(pathlib.Path(share.__file__).parent)


class Interrupted(BaseException):
    pass


def _is_in_package(code):
    return code.co_filename.startswith(_PACKAGE)


def _is_inside(frame, is_of_call):
    """Reports whether a frame belongs to a call."""
    while frame is not None:
        if is_of_call(frame.f_code):
            return True
        frame = frame.f_back
    return False


def at_point(number, function, again=None):
    """Calls a function, and raises Interrupted at one of the points where Python runs signal handlers on the main thread: at the
    beginning of a function of Python, and once one of C has returned, before the result is used. It raises a second one again points
    later. It reports whether there was the first of these points. Generators are no points, as their deletion calls them."""
    left, next_left, is_raised = number, again, False

    def count(frame, event, _):
        nonlocal left, next_left, is_raised
        is_point = event == "c_return" or event == "call" and not frame.f_code.co_flags & inspect.CO_GENERATOR
        if not is_point or not _is_inside(frame, _is_in_package):
            return
        if left == 0:
            is_raised, left, next_left = True, next_left, None
            if left is not None:
                _at_next_line(frame, lambda: sys.setprofile(count))
            raise Interrupted  # which ends the profiling
        left -= 1

    sys.setprofile(count)
    try:
        function()
    except Interrupted:
        pass
    finally:
        sys.settrace(None)
        sys.setprofile(None)
    return is_raised


def _at_next_line(frame, function):
    """Calls a function before the next line of a frame, of those that have called it, or of a function that one of these calls."""

    def trace(*_):
        sys.settrace(None)
        function()

    sys.settrace(trace)
    while frame is not None:
        frame.f_trace = trace
        frame = frame.f_back


def at_each_point(function):
    number = 0
    while at_point(number, function):
        number += 1
    assert number
    for first in range(0, number, 3):
        at_point(first, function, again=first % 29)


class Alarms:
    """SIGALRM, by the timer of this process."""

    number = signal.SIGALRM

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.send(0)

    def send(self, seconds):
        """Sends the signal after some seconds."""
        signal.setitimer(signal.ITIMER_REAL, seconds)


class Kills:
    """SIGINT, by another process, which is this one's child."""

    number = signal.SIGINT
    _PROGRAM = """
import os, signal, struct, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
while seconds := sys.stdin.buffer.raw.read(8):
    time.sleep(struct.unpack("d", seconds)[0])
    os.kill(os.getppid(), signal.SIGINT)
"""

    def __enter__(self):
        self._process = subprocess.Popen([sys.executable, "-c", self._PROGRAM], stdin=subprocess.PIPE, bufsize=0)
        return self

    def __exit__(self, *_):
        with self._process:
            self._process.stdin.close()

    def send(self, seconds):
        self._process.stdin.write(struct.pack("d", seconds))


def at_random(sender, count, function, is_of_call=_is_in_package):
    """Calls a function again and again, until a handler has raised count exceptions in it, up to two in one call. A signal that comes
    while no code of the package runs, or none for which is_of_call returns true, is sent again soon."""
    raised, again, is_sent = 0, None, False  # again: seconds until the next signal, or None while there is no call

    def send(seconds):
        nonlocal is_sent
        if not is_sent:
            is_sent = True
            sender.send(seconds)

    def handle(_, frame):
        nonlocal raised, again, is_sent
        is_sent = False
        if again is None:
            return
        if not _is_inside(frame, is_of_call):
            send(random.uniform(1e-6, 1e-4))
            return
        raised += 1
        seconds, again = again, 0
        if seconds:
            send(seconds)
        raise Interrupted

    function()  # the first call takes longer
    began = time.monotonic()
    function()
    usual = time.monotonic() - began
    before = signal.signal(sender.number, handle)
    try:
        with sender:
            while raised < count:
                again = random.choice((0, random.uniform(1e-6, usual), random.uniform(1e-6, 1e-4)))
                try:
                    send(random.uniform(1e-6, usual))
                    function()
                except Interrupted:
                    pass
                finally:
                    again = None
    finally:
        signal.signal(sender.number, before)
