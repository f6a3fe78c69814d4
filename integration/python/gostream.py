"""Streams of Go's arrays and record batches: device streams, and the plain ones that
most libraries have."""

import contextlib
import ctypes
import time

import abi
from golib import GoArray, GoBatch, GoHandle, ext, lib

PATIENCE = 30  # seconds, until a test fails whose other side does not come

_libc = ctypes.CDLL(None)
_libc.calloc.argtypes, _libc.calloc.restype = [ctypes.c_size_t, ctypes.c_size_t], ctypes.c_void_p
_libc.free.argtypes = [ctypes.c_void_p]


class GoStream(GoHandle):
    """A cdevice.RecordReader or a cdevice.ArrayReader: an iterable of its items. It can be read and exported at the same
    time, and exported several times."""

    def __init__(self, handle):
        super().__init__(handle)
        self._kind = {"batch": GoBatch, "array": GoArray}[self.describe()["kind"]]

    @classmethod
    def of(cls, items, like=None, how="iterator", fails_after=None, failure="error", message=""):
        """A stream of GoBatches or of GoArrays, which the caller keeps until they are
        read. how is the kind of Go source: "iterator", "function" (batches), "table"
        (batches on the host), "chunked" (arrays on the host). After so many items the
        first two fail in a way that golib's table of failures has. Without items, it is
        of the type of like."""
        like, after = like or items[0], -1 if fails_after is None else fails_after
        return cls(ext.make_stream(how, like.object, [item.handle for item in items], after, failure, message))

    @classmethod
    def take(cls, address, of_arrays=False, full_validation=False, prefetch=0, with_gil=False, plain=False):
        """Imports the ArrowDeviceArrayStream at an address, even if it raises, or the ArrowArrayStream."""
        return cls(ext.import_stream(address, plain, of_arrays, full_validation, prefetch, with_gil))

    @classmethod
    def from_arrow(cls, source, **options):
        """Imports from any object that has __arrow_c_stream__. Options are those of take."""
        capsule = source.__arrow_c_stream__()
        return cls.take(abi.capsule_pointer(capsule, "arrow_array_stream"), plain=True, **options)

    def describe(self):
        return ext.describe_stream(self.handle)

    def export(self, address, for_host=False):
        """Fills the ArrowDeviceArrayStream at an address."""
        ext.export_stream(self.handle, address, False, for_host)

    @contextlib.contextmanager
    def exported(self, **options):
        """The struct that export fills, for a with statement."""
        with abi.owned(abi.ArrowDeviceArrayStream()) as stream:
            self.export(ctypes.addressof(stream), **options)
            yield stream

    def export_plain(self, address):
        """Fills the ArrowArrayStream at an address."""
        ext.export_stream(self.handle, address, True, True)

    def __arrow_c_stream__(self, requested_schema=None):
        address = _libc.calloc(1, ctypes.sizeof(abi.ArrowArrayStream))
        try:
            self.export_plain(address)
        except BaseException:
            _libc.free(address)
            raise
        return abi.new_capsule(address, "arrow_array_stream", lib.golib_destroy_stream_capsule)

    def next(self):
        """The next item, which the caller releases, or None at the end."""
        item = ext.next(self.handle)
        return None if item is None else self._kind(item)

    def __iter__(self):
        return iter(self.next, None)

    def copy_to(self, device_type, device_id=0, stream=0):
        """A stream of copies on a device: through a reader of arrow-go if the host can read this
        one, and RecordReader.CopyTo if not. It is one batch ahead."""
        return GoStream(ext.copy_stream(self.handle, device_type, device_id, stream))

    def through_arrow_go(self):
        """The stream as an arrow-go reader has it: WrapRecordReader of HostReader."""
        return GoStream(ext.host_stream(self.handle))


@contextlib.contextmanager
def released(items):
    """A list whose items are released at the end."""
    kept = []
    try:
        for item in items:
            kept.append(item)
        yield kept
    finally:
        for item in kept:
            item.release()


def wait_until(done):
    """For a stream that is ahead of its consumer: it ends on a thread of its own."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0)
