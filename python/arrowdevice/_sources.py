"""Iterables and callables of Python as device streams, which Go reads on its own threads."""

from __future__ import annotations

import collections.abc
import ctypes
import errno
import itertools

from . import _capsules
from ._errors import Refusal, annotate, describe
from ._structs import (
    CPU,
    GET,
    GET_LAST_ERROR,
    RELEASE,
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
    """The exception that a source raised while Go read it, for the call that fails because of it."""

    error, text = None, ""

    def set(self, error):
        self.error, self.text = error, describe(error)


def original(origins, text):
    """The exception behind a Go error with a text, if a source raised it."""
    for origin in origins:
        error = origin.error
        if error is not None and origin.text in text:
            origin.error = None
            annotate(error, f"raised by a source, which Go read: {text}")
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
            text = GET_LAST_ERROR(stream.get_last_error)(address)
            raise OSError(code, ctypes.string_at(text).decode(errors="replace") if text else "a stream failed")
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


class Source:
    """A source that Go reads. open() reads its first batch, for the schema and the device type."""

    def __init__(self, iterable, origin):
        iterator = iter(iterable)
        # Generators end with the stream; other iterators are left as they are.
        self._close = iterator.close if isinstance(iterator, collections.abc.Generator) else None
        self._origin, self._text, self.failed = origin, None, 0
        self._pieces = _checked(_pieces(iterator))
        self._schema = self._first = None
        self._iterable, self._number = iterable, next(_numbers)
        self._struct = ArrowDeviceArrayStream(CPU, *_CALLBACKS, self._number)

    def open(self):
        """The address of the struct, whose contents Go takes."""
        self._first = next(self._pieces, None)
        self._schema = self._first.schema if self._first else _declared(self._iterable)
        self._struct.device_type = self._first.array.device_type if self._first else CPU
        self._iterable = None
        _alive[self._number] = self
        return ctypes.addressof(self._struct)

    def abandon(self):
        """Ends a source whose struct Go did not take."""
        _alive.pop(self._number, None)
        self.close()

    def fill_schema(self, out):
        schema, self._schema = self._schema, None
        if schema is None or not schema.release:
            raise RuntimeError("the schema of a source was taken before")
        move(schema, out)

    def fill_next(self, out):
        piece, self._first = self._first or next(self._pieces, None), None
        self._schema = None  # it may lie in a capsule of the first piece
        if piece is None:
            ctypes.memset(out, 0, ctypes.sizeof(ArrowDeviceArray))
            return
        if not piece.array.array.release:
            raise ValueError("a record batch was consumed before")
        move(piece.array, out)
        piece.release()

    def fail(self, error):
        """Leaves an exception to the caller, and its text to Go. The source has ended."""
        if isinstance(error, Refusal):
            error = error.kind(f"source{error.path}: {error.text}")
        # The source does not keep the exception: its frames may hold the reader that keeps the source.
        origin, self._origin = self._origin, None
        origin.set(error)
        self._text = ctypes.create_string_buffer(origin.text.encode(errors="replace"))
        self.failed = next((number for kinds, number in _ERRNOS if isinstance(error, kinds)), errno.EIO)

    def last_error(self):
        return ctypes.addressof(self._text) if self._text else None

    def close(self):
        first, self._first = self._first, None
        if self._schema is not None:
            release(self._schema)
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


# The callbacks serve all sources, and are never freed: a callback must not end while it runs.
_alive, _numbers = {}, itertools.count(1)


def alive():
    """How many sources Go may still read."""
    return len(_alive)


def _source(stream):
    return _alive[ArrowDeviceArrayStream.from_address(stream).private_data]


def _fill(stream, fill, out):
    source = _source(stream)
    if not source.failed:
        try:
            fill(source, out)
        except BaseException as e:
            source.fail(e)
    return source.failed


@GET
def _get_schema(stream, out):
    return _fill(stream, Source.fill_schema, out)


@GET
def _get_next(stream, out):
    return _fill(stream, Source.fill_next, out)


@GET_LAST_ERROR
def _get_last_error(stream):
    return _source(stream).last_error()


@RELEASE
def _release(stream):
    struct = ArrowDeviceArrayStream.from_address(stream)
    source = _alive.pop(struct.private_data)
    struct.release = None
    source.close()


_THUNKS = (_get_schema, _get_next, _get_last_error, _release)
_CALLBACKS = [ctypes.cast(thunk, ctypes.c_void_p).value for thunk in _THUNKS]
for _thunk in _THUNKS:
    _capsules.increase(_thunk)
