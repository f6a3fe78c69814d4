"""Go as the consumer of asynchronous streams: cdevice.ImportAsync. The producer is in
gosource.py.

Streams end with close(), or at the end of a with statement.
"""

import contextlib
import ctypes

import pyarrow as pa

import abi
from golib import GoBatch, GoError
from golibrary import _address, _ask, _call, _create, _handle, _lib, _out_handle, _out_text
from gosource import handle_of

for _name, _arguments in {
    "golib_async_open": [_address, ctypes.c_int, ctypes.c_int, _handle, _out_handle],
    "golib_async_schema": [_handle, _handle, _address],
    "golib_async_device_type": [_handle, _out_text],
    "golib_async_metadata": [_handle, _address],
    "golib_async_next": [_handle, _address, _out_handle],
    "golib_async_error": [_handle, _out_text],
    "golib_async_close": [_handle],
    "golib_async_release": [_handle],
    "golib_forward_async": [_handle, _address, _handle],
}.items():
    _function = getattr(_lib, _name)
    _function.argtypes, _function.restype = _arguments, ctypes.c_void_p


class AsyncError(GoError):
    """A cdevice.ProducerError, which a producer reported."""

    def __init__(self, text, callback, code, message, metadata):
        super().__init__(text)
        self.callback, self.code, self.message = callback, code, message
        self.metadata = {bytes.fromhex(key): bytes.fromhex(value) for key, value in metadata.items()}


class AsyncStream:
    """cdevice.ImportAsync: give handler, an address, to a producer, and then
    iterate over (GoBatch, metadata), of which the caller releases the batch."""

    def __init__(self, queue_size=0, full_validation=False, context=None):
        self._struct = abi.ArrowAsyncDeviceStreamHandler()
        self.handler = ctypes.addressof(self._struct)
        ctypes.memset(self.handler, 0xAA, ctypes.sizeof(self._struct))
        self._handle = _create("async_open", self.handler, queue_size, full_validation, handle_of(context))

    def wait_for_schema(self, context=None):
        with abi.owned(abi.ArrowSchema()) as struct:
            _call("async_schema", self._handle, handle_of(context), ctypes.addressof(struct))
            return pa.Schema._import_from_c(ctypes.addressof(struct))

    @property
    def schema(self):
        """Waits for the producer."""
        return self.wait_for_schema()

    @property
    def device_type(self):
        return _ask("async_device_type", self._handle)

    @property
    def metadata(self):
        """Of the stream; None if it has none."""
        with abi.owned(abi.ArrowSchema()) as struct:
            _call("async_metadata", self._handle, ctypes.addressof(struct))
            return abi.decode_metadata(struct.metadata)

    def next(self):
        """The next batch and its metadata (None if it has none), or None at the end."""
        with abi.owned(abi.ArrowSchema()) as struct:
            try:
                handle = _create("async_next", self._handle, ctypes.addressof(struct))
            except GoError as e:
                error = _ask("async_error", self._handle)
                if error:
                    raise AsyncError(str(e), **error) from None
                raise
            if not handle:
                return None
            return GoBatch(handle), abi.decode_metadata(struct.metadata)

    def __iter__(self):
        return iter(self.next, None)

    def forward(self, handler, context=None):
        """ExportAsync of this stream, to another handler."""
        _call("forward_async", self._handle, handler, handle_of(context))

    def cancel(self):
        """cdevice.AsyncStream.Close, which the object outlives."""
        _call("async_close", self._handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Cancels if need be, and waits until the producer releases the handler; a
        second call does nothing."""
        handle, self._handle = self._handle, 0
        if handle:
            _call("async_release", handle)


@contextlib.contextmanager
def released(batches):
    """A list of batches that are released at the end; a stream gives them with metadata."""
    kept = []
    try:
        for batch in batches:
            kept.append(batch[0] if isinstance(batch, tuple) else batch)
        yield kept
    finally:
        for batch in kept:
            batch.release()
