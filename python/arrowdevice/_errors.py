"""Exceptions of a library's functions."""

from __future__ import annotations


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
