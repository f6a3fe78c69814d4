"""The Go library of the tests, build/libgolib.so, which GOLIB names: its functions (ext), and its arrays and record
batches as the tests use them. Streams of them are in gostream.py.
"""

import ctypes
import json
import os
import pathlib
import types

import abi  # noqa: F401, before arrowdevice, which it finds
import arrowdevice

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATH = os.environ.get("GOLIB", str(ROOT / "build" / "libgolib.so"))


ext = arrowdevice.load(PATH)
lib = ctypes.CDLL(PATH)  # for the few functions that are C
lib.golib_drop.argtypes, lib.golib_drop.restype = [ctypes.c_uint64], None

# The exceptions that errors of Go become.
GoError = (arrowdevice.Error, ValueError, TypeError, NotImplementedError, OSError, BufferError)

# pytest puts a file that is lost with the process in the place of standard error, which
# is where Go writes the traceback of a crash. This descriptor, for this process alone, gets it too.
_CRASH_OUTPUT = os.environ.pop("GOLIB_CRASH_FD", None)
if _CRASH_OUTPUT is not None:
    ext.crash_output(int(_CRASH_OUTPUT))


def stats():
    """Live objects of the Go side."""
    counts = {**ext._library.ask(".stats"), **ext.stats()}
    del counts["calls"]  # which may be ending
    return counts


class GoHandle:
    """A handle of a Go object that pyextension has no type for."""

    def __init__(self, handle):
        self.handle = handle

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def release(self, on_other_thread=False):
        """Ends this object; a second call does nothing. The other thread is one that Python has never seen."""
        handle, self.handle = self.handle, 0
        if handle:
            (ext.drop if on_other_thread else lib.golib_drop)(handle)


class _Plain:
    """Hides all of an object but its plain array."""

    def __init__(self, source):
        self._source = source

    def __arrow_c_schema__(self):
        return self._source.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema=None):
        return self._source.__arrow_c_array__(requested_schema)


class GoObject:
    """An arrowdevice.Array or an arrowdevice.RecordBatch, of which consumers see only the device array."""

    def __init__(self, object):
        self.object, self._kept = object, GoHandle(0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    @property
    def handle(self):
        """The handle by which a source finds this object until its release."""
        if not self._kept.handle:
            self._kept = GoHandle(ext.keep(self.object))
        return self._kept.handle

    def release(self, on_other_thread=False):
        """Ends this object; a second call does nothing. The other thread is one that Python has never seen."""
        if on_other_thread:
            assert self.handle
        self.object.close()
        self._kept.release(on_other_thread)

    # By pointer, under the names that PyArrow uses.

    def _export_to_c_device(self, array_address, schema_address=0, for_host=False):
        ext.export(ext.as_cpu(self.object) if for_host else self.object, array_address, schema_address)

    @classmethod
    def _import_from_c_device(cls, array_address, schema_address, full_validation=False, release_with_gil=False):
        """Takes the contents of the structs, even if it raises."""
        return cls(cls._import(array_address, schema_address, False, full_validation, release_with_gil))

    def _export_to_c(self, array_address, schema_address=0):
        ext.export_plain(self.object, array_address, schema_address)

    @classmethod
    def _import_from_c(cls, array_address, schema_address, full_validation=False, release_with_gil=False):
        """Takes the contents of the structs, even if it raises."""
        return cls(cls._import(array_address, schema_address, True, full_validation, release_with_gil))

    # By capsule: the Arrow PyCapsule interface.

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        return self.object.__arrow_c_device_array__(requested_schema, **kwargs)

    def __arrow_c_schema__(self):
        return self.object.__arrow_c_schema__()

    def after(self, stream):
        """This object with an event behind the work that a stream has now."""
        return type(self)(ext.record_event(self.object, stream))

    def plain(self):
        """An object that has __arrow_c_array__, for consumers that know no devices."""
        return _Plain(ext.as_cpu(self.object))

    @classmethod
    def from_arrow(cls, source, full_validation=False):
        """Imports from any object that has __arrow_c_device_array__."""
        return cls(cls._take(source, full_validation))

    @classmethod
    def from_capsules(cls, *capsules):
        """Imports from what __arrow_c_device_array__ returned."""
        return cls.from_arrow(types.SimpleNamespace(__arrow_c_device_array__=lambda: capsules))

    @classmethod
    def from_plain(cls, source, full_validation=False):
        """Imports from any object that has __arrow_c_array__."""
        return cls(cls._take(_Plain(source), full_validation))

    # Go's view of the object.

    def describe(self):
        return ext.describe(self.object)

    def slice(self, i, j):
        return type(self)(self.object.slice(i, j))

    def copy_to_host(self):
        return type(self)(ext.copy_to_host(self.object))

    def copy_to(self, device_type, device_id=0, stream=0):
        """A copy on a device, which is enqueued on a stream of that device."""
        return type(self)(ext.copy_to(self.object, device_type, device_id, stream))

    def ready(self):
        """Reports whether the event is complete."""
        return ext.ready(self.object)

    def wait(self):
        self.object.synchronize()

    def wait_on(self, stream):
        """Makes a stream wait for the event."""
        ext.wait_on(self.object, stream)

    def used_on(self, stream):
        """The memory is kept for the work that a stream has at the end of this object."""
        ext.used_on(self.object, stream)

    def values(self):
        return json.loads(ext.values(self.object))

    def buffers(self):
        return ext.buffers(self.object)

    def difference(self, other):
        """The difference from another object, or an empty text."""
        return ext.difference(self.object, other.object)


class GoArray(GoObject):
    _import, _take = ext.import_array, ext.take_array

    @classmethod
    def make(cls, case, variant):
        return cls(ext.make_array(case, variant))

    @classmethod
    def make_pinned(cls, case, variant, gpu=0):
        """In page-locked memory of a GPU."""
        return cls(ext.make_pinned_array(case, variant, gpu))

    @classmethod
    def make_bare(cls, case):
        """An array of the case's type that has no elements, and no buffers either."""
        return cls(ext.make_bare_array(case))


class GoBatch(GoObject):
    _import, _take = ext.import_batch, ext.take_batch

    @classmethod
    def make(cls, case, variant):
        """A batch with the case's array as column "a" and as column "b"."""
        return cls(ext.make_batch(case, variant))

    @classmethod
    def make_annotated(cls):
        """A batch without rows whose schema uses every feature of a schema."""
        return cls(ext.make_annotated_batch())

    @classmethod
    def make_demo(cls, rows):
        return cls(ext.make_demo_batch(rows))

    def column(self, i):
        return GoArray(self.object.column(i))

    def select(self, *indices):
        return GoBatch(ext.select(self.object, list(indices)))
