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


_KINDS = {
    kind.__name__: kind
    for kind in (
        TypeError,
        ValueError,
        OverflowError,
        NotImplementedError,
        IndexError,
        KeyError,
        RuntimeError,
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


class Refusal(Exception):
    """An argument that cannot be converted; becomes an exception of kind, which names the argument."""

    def __init__(self, kind, text, path=""):
        super().__init__(text)
        self.kind, self.text, self.path = kind, text, path

    def inside(self, path):
        """The same refusal, of an element of a list or dict."""
        return Refusal(self.kind, self.text, path + self.path)

    def error(self, function, argument):
        return self.kind(f"{function}: argument {argument}{self.path}: {self.text}")


def of_reply(kind, text):
    """The exception for an error of a reply."""
    return _KINDS.get(kind, Error)(text)


def describe(error):
    """The type and the text of an exception, also of one whose text cannot be made."""
    try:
        text = str(error)
    except Exception:
        text = "(its text cannot be made)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def annotate(error, note):
    """Adds a note to an exception that is not ours. Before Python 3.11 a cause carries it."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif error.__cause__ is None:
        error.__cause__ = Error(note)


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
