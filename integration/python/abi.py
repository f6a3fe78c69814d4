"""The C structs of the Arrow C data, device and stream interfaces, for ctypes."""

import contextlib
import ctypes
import os
import sys

# The folder of the package arrowdevice, which in the kit is in this one.
PACKAGE = os.path.normpath(os.path.join(os.path.abspath(__file__), "../../../python"))
sys.path.insert(0, PACKAGE)

from arrowdevice._devices import CPU, CUDA, CUDA_HOST, CUDA_MANAGED, EXT_DEV  # noqa: E402, F401


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


class ArrowArrayStream(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("get_schema", "get_next", "get_last_error", "release", "private_data")]


class ArrowDeviceArrayStream(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), *ArrowArrayStream._fields_]


# The callbacks of streams. Structs are addresses.
GET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
GET_LAST_ERROR = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def release(struct):
    """Calls the release callback of a struct, unless it was released or moved."""
    owner = struct.array if isinstance(struct, ArrowDeviceArray) else struct
    if owner.release:
        RELEASE(owner.release)(ctypes.addressof(owner))


class ArrowAsyncTask(ctypes.Structure):
    _fields_ = [("extract_data", ctypes.c_void_p), ("private_data", ctypes.c_void_p)]


class ArrowAsyncProducer(ctypes.Structure):
    """As abi.h has it, without a release."""

    _fields_ = [
        ("device_type", ctypes.c_int32),
        ("request", ctypes.c_void_p),
        ("cancel", ctypes.c_void_p),
        ("additional_metadata", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    ]


class ArrowAsyncDeviceStreamHandler(ctypes.Structure):
    _fields_ = [
        ("on_schema", ctypes.c_void_p),
        ("on_next_task", ctypes.c_void_p),
        ("on_error", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("producer", ctypes.POINTER(ArrowAsyncProducer)),
        ("private_data", ctypes.c_void_p),
    ]


# The callbacks of the asynchronous structs: self and arguments as addresses.
EXTRACT_DATA = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
REQUEST = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
CANCEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
ON_SCHEMA = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
ON_NEXT_TASK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
ON_ERROR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


def encode_metadata(metadata):
    """Key-value pairs, of bytes, in the encoding of ArrowSchema.metadata."""
    out = len(metadata).to_bytes(4, sys.byteorder, signed=True)
    for text in (text for pair in metadata.items() for text in pair):
        out += len(text).to_bytes(4, sys.byteorder, signed=True) + text
    return out


def decode_metadata(address):
    """The pairs at an address, or None at NULL."""
    if not address:
        return None
    pairs, at = {}, address

    def number():
        nonlocal at
        at += 4
        return ctypes.c_int32.from_address(at - 4).value

    def text():
        nonlocal at
        size = number()
        at += size
        return ctypes.string_at(at - size, size)

    for _ in range(number()):
        key = text()
        pairs[key] = text()
    return pairs


def _owner(struct):
    return struct.array if isinstance(struct, ArrowDeviceArray) else struct


def is_filled(struct):
    """Whether a struct holds something: it was not moved, and not released."""
    return bool(_owner(struct).release)


def get_schema(stream, schema):
    """The result of get_schema, which fills the schema."""
    return GET(stream.get_schema)(ctypes.addressof(stream), ctypes.addressof(schema))


def get_next(stream, array):
    """The result of get_next, which fills the array."""
    return GET(stream.get_next)(ctypes.addressof(stream), ctypes.addressof(array))


def last_error(stream):
    """The text of a stream's last error, None if it has none."""
    address = GET_LAST_ERROR(stream.get_last_error)(ctypes.addressof(stream))
    return None if address is None else ctypes.string_at(address).decode()


@contextlib.contextmanager
def owned(struct):
    """A struct that is released at the end, unless its contents were moved to a
    consumer."""
    try:
        yield struct
    finally:
        release(struct)


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
    """Structs that are released at the end, unless their contents were moved to a
    consumer."""
    s = Structs()
    try:
        yield s
    finally:
        s.release()


# Function objects of this module's own: other modules may declare other types for the same function.
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_size_t, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
_names = {}  # a capsule keeps the address of its name


def capsule_name(capsule):
    return _get_name(capsule).decode()


def rename_capsule(capsule, name):
    _set_name(capsule, _names.setdefault(name, name.encode()))


def capsule_pointer(capsule, name):
    """The address of the struct in a capsule."""
    return _get_pointer(capsule, name.encode())


def new_capsule(address, name, destructor):
    """A capsule of the struct at an address. The destructor is a function of C, or None."""
    return _new_capsule(address, _names.setdefault(name, name.encode()), ctypes.cast(destructor, ctypes.c_void_p))
