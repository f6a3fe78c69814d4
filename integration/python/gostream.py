"""Streams of Go's arrays and record batches: device streams, and the plain ones that
most libraries have."""

import contextlib
import ctypes
import time

import abi
import golib
from golib import GoArray, GoBatch, GoHandle
from golibrary import _call, _create

PATIENCE = 30  # seconds, until a test fails whose other side does not come


class GoStream(GoHandle):
    """A cdevice.RecordReader or a cdevice.ArrayReader: an iterable of its items."""

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
        handles = (ctypes.c_uint64 * len(items))(*(item.handle for item in items))
        template = (like or items[0]).handle
        after = -1 if fails_after is None else fails_after
        return cls(_create("make_stream", how.encode(), template, handles, len(items), after, failure.encode(), message.encode()))

    @classmethod
    def take(cls, address, of_arrays=False, full_validation=False, prefetch=0, with_gil=False):
        """Imports the ArrowDeviceArrayStream at an address, even if it raises."""
        return cls(_create("import_stream", address, of_arrays, full_validation, prefetch, with_gil))

    @classmethod
    def from_arrow(cls, source, **options):
        """Imports from any object that has __arrow_c_stream__. Options are those of take."""
        capsule = source.__arrow_c_stream__()
        return cls.take_plain(golib.capsule_pointer(capsule, "arrow_array_stream"), **options)

    @classmethod
    def take_plain(cls, address, of_arrays=False, full_validation=False, prefetch=0, with_gil=False):
        """Imports the ArrowArrayStream at an address, even when it raises."""
        return cls(_create("import_plain_stream", address, of_arrays, full_validation, prefetch, with_gil))

    def export(self, address, for_host=False):
        """Fills the ArrowDeviceArrayStream at an address."""
        _call("export_stream", self.handle, address, for_host)

    @contextlib.contextmanager
    def exported(self, **options):
        """The struct that export fills, for a with statement."""
        with abi.owned(abi.ArrowDeviceArrayStream()) as stream:
            self.export(ctypes.addressof(stream), **options)
            yield stream

    def export_plain(self, address):
        """Fills the ArrowArrayStream at an address."""
        _call("export_plain_stream", self.handle, address)

    def __arrow_c_stream__(self, requested_schema=None):
        with golib._owned_stream() as stream:
            self.export_plain(stream.address)
            return stream.capsule()

    def next(self):
        """The next item, which the caller releases, or None at the end."""
        handle = _create("next", self.handle)
        return self._kind(handle) if handle else None

    def __iter__(self):
        return iter(self.next, None)

    def copy_to(self, device_type, device_id=0, stream=0):
        """A stream of copies on a device: through a reader of arrow-go if the host can read this
        one, and RecordReader.CopyTo if not. It is one batch ahead."""
        return GoStream(_create("copy_stream", self.handle, device_type, device_id, stream))

    def through_arrow_go(self):
        """The stream as an arrow-go reader has it: WrapRecordReader of HostReader."""
        return GoStream(_create("host_stream", self.handle))


@contextlib.contextmanager
def released(items):
    """A list whose items are released at the end."""
    items = list(items)
    try:
        yield items
    finally:
        for item in items:
            item.release()


def wait_until(done):
    """For a stream that is ahead of its consumer: it ends on a thread of its own."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0)
