"""The Go library for Python: arrays and record batches that PyArrow can import.
Streams of them are in gostream.py.

Objects own a handle until release(), or the end of a with statement. There is no
finalizer: an object that is not released is a leak, and the tests report it.
"""

import ctypes
import os

import abi
from golibrary import GoError as GoError
from golibrary import _ask, _call, _create, _lib

# pytest puts a file that is lost with the process in the place of standard error, which
# is where Go writes the traceback of a crash. This descriptor, for this process alone, gets it too.
_CRASH_OUTPUT = os.environ.pop("GOLIB_CRASH_FD", None)
if _CRASH_OUTPUT is not None:
    _call("crash_output", int(_CRASH_OUTPUT))


def crash(how):
    """Ends the process: by a "panic", or by a "fault", on a goroutine of Go's own."""
    _call("crash", how.encode())


def cases():
    """The cases and variants of GoArray.make: {"cases": [{"name", "type"}], "variants":
    [...]}."""
    return _ask("cases")


def stats():
    """Live objects of the Go side."""
    return _ask("stats")


def gc():
    """Collects Go's garbage."""
    _lib.golib_gc()


def gpu_name(ordinal):
    """Opens a GPU, for the life of the process."""
    return _ask("gpu_name", ordinal)


def gpu_trim(ordinal):
    """Waits for the work of a GPU, completes pending frees, and gives cached memory
    back. Behind a closed gate it waits for ever."""
    _call("gpu_trim", ordinal)


def gpu_stats(ordinal):
    """Go's live memory on a GPU."""
    return _ask("gpu_stats", ordinal)


# PyCapsule_GetPointer and PyCapsule_New, with the capsule as an object.
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_get_pointer.restype = ctypes.c_size_t
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_new_capsule.restype = ctypes.py_object


# PyCapsule_New keeps the pointer to the name, so these live as long as the module.
_SCHEMA, _ARRAY, _DEVICE_ARRAY, _STREAM = b"arrow_schema", b"arrow_array", b"arrow_device_array", b"arrow_array_stream"


def capsule_pointer(capsule, name):
    """The address of the struct in a capsule."""
    return _get_pointer(capsule, name.encode())


class _Owned:
    """A C struct that a capsule will own: filled by Go, then put into the capsule.
    If filling it fails, no capsule owns it, and it is freed here."""

    def __init__(self, struct, name, destructor):
        self._name, self._destructor = name, ctypes.cast(destructor, ctypes.c_void_p)
        self.address = _lib.golib_new_struct(ctypes.sizeof(struct))

    def __enter__(self):
        return self

    def capsule(self):
        capsule = _new_capsule(self.address, self._name, self._destructor)
        self.address = None
        return capsule

    def __exit__(self, *_):
        if self.address is not None:
            _lib.golib_free_struct(self.address)


def _owned_schema():
    return _Owned(abi.ArrowSchema, _SCHEMA, _lib.golib_destroy_schema_capsule)


def _owned_array():
    return _Owned(abi.ArrowArray, _ARRAY, _lib.golib_destroy_array_capsule)


def _owned_device_array():
    return _Owned(abi.ArrowDeviceArray, _DEVICE_ARRAY, _lib.golib_destroy_device_array_capsule)


def _owned_stream():
    return _Owned(abi.ArrowArrayStream, _STREAM, _lib.golib_destroy_stream_capsule)


def _capsules(export, owned_array=_owned_device_array):
    with _owned_schema() as schema, owned_array() as array:
        export(array.address, schema.address)
        return schema.capsule(), array.capsule()


class _After:
    def __init__(self, go, stream):
        self._go, self._stream = go, stream

    def __arrow_c_device_array__(self, requested_schema=None):
        return _capsules(lambda array, schema: _call("export_after", self._go.handle, array, schema, self._stream))


class _Plain:
    def __init__(self, go):
        self._go = go

    def __arrow_c_schema__(self):
        return self._go.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema=None):
        return _capsules(self._go._export_to_c, _owned_array)


class GoHandle:
    """The Python object of a Go object."""

    def __init__(self, handle):
        self.handle = handle

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def release(self, on_other_thread=False):
        """Ends this object; a second call does nothing."""
        handle, self.handle = self.handle, 0
        if handle:
            _call("release_on_other_thread" if on_other_thread else "release", handle)

    def describe(self):
        return _ask("describe", self.handle)


class GoObject(GoHandle):
    """Methods shared by GoArray and GoBatch."""

    # By pointer, under the names that PyArrow uses.

    def _export_to_c_device(self, array_address, schema_address=0, for_host=False):
        _call("export", self.handle, array_address, schema_address, for_host)

    @classmethod
    def _import_from_c_device(cls, array_address, schema_address, full_validation=False, release_with_gil=False):
        """Takes the contents of the structs, even if it raises."""
        return cls(_create(cls._import, array_address, schema_address, full_validation, release_with_gil))

    def _export_to_c(self, array_address, schema_address=0):
        _call("export_plain", self.handle, array_address, schema_address)

    @classmethod
    def _import_from_c(cls, array_address, schema_address, full_validation=False, release_with_gil=False):
        """Takes the contents of the structs, even when it raises."""
        return cls(_create(cls._import_plain, array_address, schema_address, full_validation, release_with_gil))

    # By capsule: the Arrow PyCapsule interface.

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        """A requested schema is ignored, as the interface allows: the consumer casts."""
        unknown = [name for name, value in kwargs.items() if value is not None]
        if unknown:
            raise NotImplementedError(f"unsupported keyword arguments: {unknown}")
        return _capsules(self._export_to_c_device)

    def after(self, stream):
        """Something that a consumer imports as this object, with an event behind the
        work that a stream has when it does."""
        return _After(self, stream)

    def plain(self):
        """An object that has __arrow_c_array__, for consumers that know no devices."""
        return _Plain(self)

    def __arrow_c_schema__(self):
        with _owned_schema() as schema:
            _call("export_schema", self.handle, schema.address)
            return schema.capsule()

    @classmethod
    def from_capsules(cls, schema_capsule, array_capsule, full_validation=False):
        """Moves the contents of the capsules to Go. The empty capsules are destroyed
        later."""
        array = _get_pointer(array_capsule, _DEVICE_ARRAY)
        schema = _get_pointer(schema_capsule, _SCHEMA)
        return cls._import_from_c_device(array, schema, full_validation)

    @classmethod
    def from_arrow(cls, source, full_validation=False):
        """Imports from any object that has __arrow_c_device_array__."""
        return cls.from_capsules(*source.__arrow_c_device_array__(), full_validation=full_validation)

    @classmethod
    def from_plain(cls, source, full_validation=False):
        """Imports from any object that has __arrow_c_array__."""
        schema, array = source.__arrow_c_array__()
        return cls._import_from_c(_get_pointer(array, _ARRAY), _get_pointer(schema, _SCHEMA), full_validation)

    # Go's view of the object.

    def slice(self, i, j):
        return type(self)(_create("slice", self.handle, i, j))

    def copy_to_host(self):
        return type(self)(_create("copy_to_host", self.handle))

    def copy_to(self, device_type, device_id=0, stream=0):
        """A copy on a device, which is enqueued on a stream of that device."""
        return type(self)(_create("copy_to", self.handle, device_type, device_id, stream))

    def ready(self):
        """Whether the event is complete."""
        return _ask("ready", self.handle)

    def wait(self):
        _call("wait", self.handle)

    def wait_on(self, stream):
        """Makes a stream wait for the event."""
        _call("wait_on", self.handle, stream)

    def used_on(self, stream):
        """The memory is kept for the work that a stream has at the end of this object."""
        _call("used_on", self.handle, stream)

    def values(self):
        return _ask("values", self.handle)

    def buffers(self):
        return _ask("buffers", self.handle)

    def difference(self, other):
        """The difference from another object, or an empty text."""
        return _ask("compare", self.handle, other.handle)


class GoArray(GoObject):
    _import, _import_plain = "import_array", "import_plain_array"

    @classmethod
    def make(cls, case, variant):
        return cls(_create("make_array", case.encode(), variant.encode()))

    @classmethod
    def make_pinned(cls, case, variant, gpu=0):
        """In page-locked memory of a GPU."""
        return cls(_create("make_pinned_array", case.encode(), variant.encode(), gpu))

    @classmethod
    def make_bare(cls, case):
        """An array of the case's type that has no elements, and no buffers either."""
        return cls(_create("make_bare_array", case.encode()))


class GoBatch(GoObject):
    _import, _import_plain = "import_batch", "import_plain_batch"

    @classmethod
    def make(cls, case, variant):
        """A batch with the case's array as column "a" and as column "b"."""
        return cls(_create("make_batch", case.encode(), variant.encode()))

    @classmethod
    def make_annotated(cls):
        """A batch without rows whose schema uses every feature of a schema."""
        return cls(_create("make_annotated_batch"))

    @classmethod
    def make_demo(cls, rows):
        return cls(_create("make_demo_batch", rows))

    def column(self, i):
        return GoArray(_create("column", self.handle, i))

    def select(self, *indices):
        return GoBatch(_create("select", self.handle, (ctypes.c_int * len(indices))(*indices), len(indices)))
