"""Go as the consumer of asynchronous streams: cdevice.ImportAsync. The producer is in
gosource.py.

Streams end with close(), or at the end of a with statement.
"""

import ctypes

import pyarrow as pa

import abi
import arrowdevice
from golib import GoBatch, GoError, GoHandle, ext
from gosource import handle_of


class AsyncError(arrowdevice.Error):
    """A cdevice.ProducerError, which a producer reported."""

    def __init__(self, text, callback, code, message, metadata):
        super().__init__(text)
        self.callback, self.code, self.message, self.metadata = callback, code, message, metadata


class AsyncStream(GoHandle):
    """cdevice.ImportAsync: give handler, an address, to a producer, and then
    iterate over GoBatches, which the caller releases."""

    def __init__(self, queue_size=0, full_validation=False, context=None):
        self._struct = abi.ArrowAsyncDeviceStreamHandler()
        self.handler = ctypes.addressof(self._struct)
        ctypes.memset(self.handler, 0xAA, ctypes.sizeof(self._struct))
        super().__init__(ext.async_open(self.handler, queue_size, full_validation, handle_of(context)))

    @property
    def schema(self):
        """Waits for the producer."""
        return pa.schema(ext.async_schema(self.handle))

    def next(self):
        """The next batch, or None at the end."""
        try:
            batch = ext.async_next(self.handle)
        except GoError as e:
            error = ext.async_error(self.handle)
            if error:
                raise AsyncError(str(e), **error) from None
            raise
        return None if batch is None else GoBatch(batch)

    def __iter__(self):
        return iter(self.next, None)

    def forward(self, handler):
        """ExportAsync of this stream, to another handler."""
        ext.forward_async(self.handle, handler)

    def cancel(self):
        """cdevice.AsyncStream.Close, which the object outlives."""
        ext.async_close(self.handle)

    def close(self):
        """Cancels if need be, and waits until the producer releases the handler; a
        second call does nothing."""
        self.release()
