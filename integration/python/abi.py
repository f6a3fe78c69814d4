"""The C structs of the Arrow C data and C device data interfaces, for ctypes."""

import contextlib
import ctypes

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13


class ArrowSchema(ctypes.Structure):
    pass


ArrowSchema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowSchema))),
    ("dictionary", ctypes.POINTER(ArrowSchema)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]


class ArrowArray(ctypes.Structure):
    pass


ArrowArray._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowArray))),
    ("dictionary", ctypes.POINTER(ArrowArray)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]


class ArrowDeviceArray(ctypes.Structure):
    _fields_ = [
        ("array", ArrowArray),
        ("device_id", ctypes.c_int64),
        ("device_type", ctypes.c_int32),
        ("sync_event", ctypes.c_void_p),
        ("reserved", ctypes.c_int64 * 3),
    ]


def _owner(struct):
    return struct.array if isinstance(struct, ArrowDeviceArray) else struct


def is_filled(struct):
    """Whether a struct holds something: it was not moved, and not released."""
    return bool(_owner(struct).release)


def release(struct):
    """Calls the release callback of a struct, as a consumer does. A struct that
    was moved or released already is left alone."""
    owner = _owner(struct)
    if owner.release:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(owner.release)(ctypes.addressof(owner))


def buffer_addresses(array):
    """All that the buffers of a tree of structs hold, parents first."""
    found = [array.buffers[i] for i in range(array.n_buffers)]
    for i in range(array.n_children):
        found += buffer_addresses(array.children[i].contents)
    if array.dictionary:
        found += buffer_addresses(array.dictionary.contents)
    return found


def count_releases(struct):
    """Puts itself before the release callback of a struct, and counts its calls,
    wherever the struct is moved until then."""
    owner = _owner(struct)
    pointer = ctypes.POINTER(type(owner))
    original, calls = owner.release, Releases()

    def forward(p):
        calls.count += 1
        p.contents.release = original
        release(p.contents)

    calls.callback = ctypes.CFUNCTYPE(None, pointer)(forward)
    owner.release = ctypes.cast(calls.callback, ctypes.c_void_p).value
    return calls


class Releases:
    """How often a release callback was called; it must outlive the struct."""

    count = 0


class Structs:
    """An ArrowDeviceArray and an ArrowSchema for one transfer by pointer."""

    def __init__(self):
        self.array = ArrowDeviceArray()
        self.schema = ArrowSchema()

    @property
    def addresses(self):
        return ctypes.addressof(self.array), ctypes.addressof(self.schema)

    @property
    def released(self):
        return not is_filled(self.array) and not is_filled(self.schema)

    def release(self):
        release(self.array)
        release(self.schema)


@contextlib.contextmanager
def structs():
    """Structs that are released at the end, whoever filled them, unless their
    contents were moved to a consumer."""
    s = Structs()
    try:
        yield s
    finally:
        s.release()
