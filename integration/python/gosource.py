"""Go as the producer of asynchronous streams: ExportAsync of batches that a source in
Python gives.
"""

import ctypes
import dataclasses
import itertools
import time

import abi
from golib import GoHandle, ext

PATIENCE = 60  # seconds until an object that is not released counts as a leak


class _Item(ctypes.Structure):
    """The answer of a source; see golib/exportasync.go."""

    # Addresses, not c_char_p: of bytes that are put into such a field of a struct in
    # C memory, ctypes keeps nothing.
    _fields_ = [("batch", ctypes.c_uint64), ("metadata", ctypes.c_void_p), ("failure", ctypes.c_void_p), ("message", ctypes.c_void_p)]


_SOURCE = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.POINTER(_Item))


class Context(GoHandle):
    """A context of Go's, for a with statement."""

    def __init__(self):
        super().__init__(ext.make_context())

    def cancel(self):
        ext.cancel_context(self.handle)


def handle_of(context):
    """0 for None: a context that does not end."""
    return context.handle if context else 0


@dataclasses.dataclass
class Failure:
    """The answer of a source that fails in one of the ways that golib knows."""

    kind: str
    message: str = ""


class _Source:
    """Yields the items of an iterable. Only one call is under way at a time. Go reads
    an answer after the call that gave it, so its bytes are kept until the next one."""

    def __init__(self, items):
        self._items, self._kept = iter(items), []

    def fill(self, out):
        self._kept.clear()
        try:
            item = next(self._items, None)
        except Exception as e:
            item = Failure("error", str(e))
        if isinstance(item, Failure):
            out.failure, out.message = self._keep(item.kind.encode() + b"\0"), self._keep(item.message.encode() + b"\0")
        elif item is not None:
            batch, metadata = item if isinstance(item, tuple) else (item, None)
            try:
                out.batch = ext.keep(batch.object)  # which Go drops
            except ValueError:  # the test has closed it, while the stream still reads ahead: the end
                return
            if metadata is not None:
                out.metadata = self._keep(abi.encode_metadata(metadata))

    def _keep(self, encoded):
        """The address of a copy of some bytes."""
        self._kept.append(ctypes.create_string_buffer(encoded, len(encoded)))
        return ctypes.addressof(self._kept[-1])

    def close(self):
        if hasattr(self._items, "close"):
            self._items.close()


# A callback must not end while it runs, so this one serves all sources.
_sources, _numbers = {}, itertools.count(1)


@_SOURCE
def _ask_source(number, item):
    if item:
        _sources[number].fill(item.contents)
    else:
        _sources.pop(number).close()


def sources():
    """How many sources Go may still ask."""
    return len(_sources)


def settled(alive, before):
    """The result of alive() once it equals the expected one, or after a timeout: a
    producer ends on threads of its own, after it has notified its consumer."""
    deadline = time.monotonic() + PATIENCE
    while (now := alive()) != before and time.monotonic() < deadline:
        time.sleep(0.001)
    return now


def export(items, handler, like=None, context=None, copy_to=(0, 0)):
    """ExportAsync to the handler at an address. Items are GoBatches, with their
    metadata or without, that the caller keeps until the next one is asked for; a
    Failure, or an exception, is how the source fails. A generator is run on Go's
    threads, and closed at the end. like is a GoBatch of the schema, by default the
    first item of a list. copy_to is the type of a device, and its id."""
    number = next(_numbers)
    _sources[number] = _Source(items)
    ask, like = ctypes.cast(_ask_source, ctypes.c_void_p).value, like or items[0]
    ext.export_async(ask, number, like.object, handler, handle_of(context), *copy_to)
