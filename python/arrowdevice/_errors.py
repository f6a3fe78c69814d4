"""Exceptions of a library's functions."""

from __future__ import annotations

import itertools
import types


_VARARGS = 4  # inspect.CO_VARARGS


class Error(Exception):
    """An error that a function of the library returned."""


class Panic(Error):
    """A panic in a function of the library. The text has its stack."""


class Cancelled(Error):
    """A function of the library ended because its context did."""


# By the names that Go gives them.
KINDS = {
    kind.__name__: kind
    for kind in (
        TypeError,
        ValueError,
        OverflowError,
        NotImplementedError,
        IndexError,
        KeyError,
        RuntimeError,
        OSError,
        FileNotFoundError,
        PermissionError,
        TimeoutError,
        BufferError,
        MemoryError,
        ImportError,
        Error,
        Panic,
        Cancelled,
    )
}


def annotate(error, note):
    """Adds a note to an exception that is not ours, unless it has that note: it may be raised again. Before Python 3.11 a
    cause carries it."""
    if not hasattr(error, "add_note"):
        if error.__cause__ is None:
            error.__cause__ = Error(note)
    elif note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def is_of_handler(error):
    """Reports whether a signal handler raised an exception in the main thread: one that is no Exception, such as
    KeyboardInterrupt, or one that came through a function with a number and a frame for arguments."""
    if not isinstance(error, Exception):
        return True
    trace = error.__traceback__
    while trace is not None:
        code, values = trace.tb_frame.f_code, trace.tb_frame.f_locals
        arguments = [values.get(name) for name in code.co_varnames[: code.co_argcount]]
        if code.co_flags & _VARARGS:
            arguments += values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())
        if any(isinstance(n, int) and isinstance(f, types.FrameType) for n, f in itertools.pairwise(arguments)):
            return True
        trace = trace.tb_next
    return False
