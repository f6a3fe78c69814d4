"""Iterables and callables of Python as device streams, which Go reads on its own threads."""

from __future__ import annotations

import collections.abc
import ctypes
import errno
import itertools
import os
import threading

from . import _capsules
from ._errors import Refusal, annotate, describe, is_of_handler
from ._structs import (
    CPU,
    GET,
    GET_LAST_ERROR,
    ArrowArray,
    ArrowArrayStream,
    ArrowDeviceArray,
    ArrowDeviceArrayStream,
    ArrowSchema,
    difference,
    layout,
    move,
    release,
)

_ERRNOS = ((MemoryError, errno.ENOMEM), (NotImplementedError, errno.ENOSYS), ((TypeError, ValueError), errno.EINVAL))


class Origin:
    """The exception that a source raised while Go read it, for the call that fails because of it; and the thread
    that runs the source, which cannot wait for it."""

    error, token = None, ""
    thread = None  # where the source runs now

    def set(self, error, token):
        self.error, self.token = error, token


def refuse_own(origins):
    """Raises ValueError if a source reads the reader that waits for it."""
    thread = threading.get_ident()
    if any(origin.thread == thread for origin in origins):
        raise ValueError("the RecordReader is waiting for the source that reads it here")


def original(origins, text):
    """The exception behind a Go error with a text, if a source raised it."""
    for origin in origins:
        error = origin.error
        if error is not None and origin.token in text:
            origin.error = None
            annotate(error, f"raised by a source, which Go read: {text.replace(origin.token, '')}")
            return error
    return None


class _Piece:
    """A record batch of a source: its structs, which may lie in capsules."""

    def __init__(self, schema, array, keep=None):
        self.schema, self.array, self._keep = schema, array, keep

    def release(self):
        """Releases what was not moved."""
        release(self.schema)
        release(self.array)


def _plain(array, keep):
    """A device array of an array in host memory."""
    device = ArrowDeviceArray(device_type=CPU, device_id=-1)
    move(array, ctypes.addressof(device))
    return device


def _device_array(item):
    capsules = item.__arrow_c_device_array__()
    schema, array = _capsules.pointers(capsules, ("arrow_schema", "arrow_device_array"), "__arrow_c_device_array__")
    yield _Piece(ArrowSchema.from_address(schema), ArrowDeviceArray.from_address(array), capsules)


def _array(item):
    capsules = item.__arrow_c_array__()
    schema, array = _capsules.pointers(capsules, ("arrow_schema", "arrow_array"), "__arrow_c_array__")
    array = ArrowArray.from_address(array)
    if not array.release:
        raise Refusal(ValueError, "__arrow_c_array__ returned an array that was consumed before")
    yield _Piece(ArrowSchema.from_address(schema), _plain(array, capsules), capsules)


def _device_stream(item):
    capsule = item.__arrow_c_device_stream__()
    at = _capsules.pointer(capsule, "arrow_device_array_stream", "__arrow_c_device_stream__")
    yield from _read(ArrowDeviceArrayStream.from_address(at), ArrowDeviceArray, capsule)


def _stream(item):
    capsule = item.__arrow_c_stream__()
    at = _capsules.pointer(capsule, "arrow_array_stream", "__arrow_c_stream__")
    yield from _read(ArrowArrayStream.from_address(at), ArrowArray, capsule)


def _read(stream, array_type, capsule):
    """The batches of a stream, which its capsule owns."""
    if not stream.release:
        raise Refusal(ValueError, "its stream was consumed before")
    address = ctypes.addressof(stream)

    def ask(callback, out):
        code = GET(callback)(address, ctypes.addressof(out))
        if code:
            text = stream.get_last_error and GET_LAST_ERROR(stream.get_last_error)(address)
            raise OSError(code, ctypes.string_at(text).decode(errors="replace") if text else os.strerror(code))
        return out

    while True:
        array = ask(stream.get_next, array_type())
        if not (array.array if array_type is ArrowDeviceArray else array).release:
            return
        try:
            schema = ask(stream.get_schema, ArrowSchema())
        except BaseException:
            release(array)
            raise
        yield _Piece(schema, array if array_type is ArrowDeviceArray else _plain(array, None), capsule)


# In the order in which an item is asked.
_PROTOCOLS = {
    "__arrow_c_device_array__": _device_array,
    "__arrow_c_device_stream__": _device_stream,
    "__arrow_c_array__": _array,
    "__arrow_c_stream__": _stream,
}


def _pieces(items):
    """The batches of all items, with the number of the item."""
    for number, item in enumerate(items):
        for method, pieces in _PROTOCOLS.items():
            if not isinstance(item, type) and hasattr(item, method):
                for piece in pieces(item):
                    yield number, piece
                break
        else:
            raise Refusal(TypeError, f"{type(item).__name__} is no record batch: it has none of {', '.join(_PROTOCOLS)}", f"[{number}]")


def _checked(pieces):
    """Refuses a batch of another schema or device than the first one's: its buffers would be misread."""
    first = None
    for number, piece in pieces:
        found = (layout(piece.schema) if piece.schema.release else None, piece.array.device_type)
        try:
            _check(found, first, number)
        except BaseException:
            piece.release()
            raise
        first = first or found
        yield piece


def _check(found, first, number):
    schema, device_type = found
    path = f"[{number}]"
    if schema is None:
        raise Refusal(ValueError, "its schema was consumed before", path)
    if schema[0] != b"+s":
        raise Refusal(TypeError, f"is an array of the format {schema[0].decode()!r}, not a record batch", path)
    if first is not None and schema != first[0]:
        text = difference(schema, first[0])
        raise Refusal(ValueError, f"has another schema than the first batch: {text}", path)
    if first is not None and device_type != first[1]:
        raise Refusal(ValueError, f"is in memory of device type {device_type}, and the first batch of {first[1]}", path)


class _State(ctypes.Structure):
    """arrowdevice_source of capi.h."""

    _fields_ = [
        ("object", ctypes.c_void_p),
        ("filled", ctypes.c_void_p),
        ("text", ctypes.c_void_p),
        ("main", ctypes.c_uint64),
        ("code", ctypes.c_int32),
    ]


_END = ArrowDeviceArray()

# Numbers of exceptions. Go cuts and replaces text, so the text of an exception does not identify it.
_numbers = itertools.count(1)

# What Go may still read.
_alive = set()


def alive():
    """How many sources Go may still read."""
    return len(_alive)


class Source:
    """A source that Go reads. open() reads its first batch, for the schema and the device type. C calls fill_schema,
    fill_next and release. An exception of a signal handler can come between any two instructions, so each hands on
    its result in its last one."""

    def __init__(self, iterable, origin, functions):
        iterator = iter(iterable)
        # Generators end with the stream; other iterators are left as they are.
        self._close = iterator.close if isinstance(iterator, collections.abc.Generator) else None
        self._origin, self._text = origin, None
        self._pieces = _checked(_pieces(iterator))
        self._schema = self._first = self._last = None
        self._iterable = iterable
        self._state = _State(id(self), None, None, threading.main_thread().ident, 0)
        self._struct = ArrowDeviceArrayStream(CPU)
        functions.open_source(ctypes.byref(self._struct), ctypes.byref(self._state))

    @property
    def address(self):
        """The address of the struct, whose contents Go takes after open()."""
        return ctypes.addressof(self._struct)

    def open(self):
        self._first = next(self._pieces, None)
        self._schema = self._first.schema if self._first else _declared(self._iterable)
        self._struct.device_type = self._first.array.device_type if self._first else CPU
        self._iterable = None
        _alive.add(self)

    def abandon(self):
        """Ends a source whose struct Go did not take."""
        self.release()

    def fill_schema(self):
        try:
            if self._schema is None or not self._schema.release:
                raise RuntimeError("the schema of a source was taken before")
            self._state.filled = ctypes.addressof(self._schema)
        except BaseException as e:
            self._fail(e)

    def fill_next(self):
        origin = self._origin
        try:
            origin.thread = threading.get_ident()
            array = self._next()
            self._state.filled = ctypes.addressof(array)
        except BaseException as e:
            self._fail(e)
        finally:
            origin.thread = None

    def _next(self):
        """The struct of the next batch, which is valid until the next call."""
        self._drop()
        self._last, self._first = self._first or next(self._pieces, None), None
        if self._last is None:
            return _END
        if not self._last.array.array.release:
            raise ValueError("a record batch was consumed before")
        return self._last.array

    def _drop(self):
        """Releases what was not moved of the schema and of the last batch."""
        schema, self._schema = self._schema, None  # it may lie in a capsule of the first batch
        if schema is not None:
            release(schema)
        last, self._last = self._last, None
        if last is not None:
            last.release()

    def _fail(self, error):
        """Leaves an exception to the caller, and its text to Go. The source has ended."""
        if isinstance(error, Refusal):
            error = error.kind(f"source{error.path}: {error.text}")
        # The source does not keep the exception: its frames may hold the reader that keeps the source.
        origin, self._origin = self._origin, None
        token = f"source exception {next(_numbers)}: "  # first: the rest may be cut
        text = (token + describe(error)).encode(errors="backslashreplace").replace(b"\0", rb"\0")
        self._text = ctypes.create_string_buffer(text)
        self._state.text = ctypes.addressof(self._text)
        interrupted = threading.get_ident() == self._state.main and is_of_handler(error)
        if not interrupted:
            origin.set(error, token)
        code = next((number for kinds, number in _ERRNOS if isinstance(error, kinds)), errno.EIO)
        self._state.code = errno.EINTR if interrupted else code
        if interrupted:  # a consumer reads in the main thread: C raises it there after the consumer's own error
            raise error

    is_of_handler = staticmethod(is_of_handler)

    def release(self):
        """Ends the source; also what a call of it that was interrupted has left."""
        _alive.discard(self)
        self._drop()
        first, self._first = self._first, None
        if first is not None:
            first.release()
        self._pieces.close()
        if self._close is not None:
            self._close()


def _declared(iterable):
    """The schema of an iterable without items."""
    schema = getattr(iterable, "schema", None)
    if not hasattr(schema, "__arrow_c_schema__"):
        raise Refusal(ValueError, "has no items, and no attribute schema: its schema is not known")
    capsule = schema.__arrow_c_schema__()
    struct = ArrowSchema()
    move(ArrowSchema.from_address(_capsules.pointer(capsule, "arrow_schema", "__arrow_c_schema__")), ctypes.addressof(struct))
    return struct
