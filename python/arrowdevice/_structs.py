"""The C structs of the Arrow C data, device and stream interfaces."""

from __future__ import annotations

import ctypes

CPU, CUDA, CUDA_HOST, ROCM, ROCM_HOST, EXT_DEV, CUDA_MANAGED = 1, 2, 3, 10, 11, 12, 13

# Memory of these device types is accessible by the CPU.
CPU_ACCESSIBLE = frozenset([CPU, CUDA_HOST, ROCM_HOST, CUDA_MANAGED])

_DEVICE_NAMES = {
    CPU: "cpu",
    CUDA: "cuda",
    CUDA_HOST: "cuda_host",
    4: "opencl",
    7: "vulkan",
    8: "metal",
    9: "vpi",
    ROCM: "rocm",
    ROCM_HOST: "rocm_host",
    EXT_DEV: "ext_dev",
    CUDA_MANAGED: "cuda_managed",
    14: "oneapi",
    15: "webgpu",
    16: "hexagon",
}


def device_name(device_type, device_id):
    """The name of a device, such as "cuda:0"; without an id where that is -1."""
    name = _DEVICE_NAMES.get(device_type, f"device_type({device_type})")
    return name if device_id < 0 or device_type == CPU else f"{name}:{device_id}"


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


def move(source, destination):
    """Moves the contents of a struct to an address."""
    ctypes.memmove(destination, ctypes.addressof(source), ctypes.sizeof(source))
    owner = source.array if isinstance(source, ArrowDeviceArray) else source
    owner.release = None


def is_column(stream):
    """Reports whether the schema of a stream is that of a column, and not of record batches."""
    schema = ArrowSchema()
    try:
        asked = stream.release and stream.get_schema and GET(stream.get_schema)(ctypes.addressof(stream), ctypes.addressof(schema)) == 0
        return bool(asked) and schema.format != b"+s"  # a stream that fails does so again when Go asks it
    finally:
        release(schema)


def layout(schema, named=False):
    """What the buffers of a schema mean, to be compared: its format and those of its children, with
    their names."""
    children = tuple(layout(schema.children[i].contents, True) for i in range(schema.n_children))
    dictionary = layout(schema.dictionary.contents) if schema.dictionary else None
    return (schema.format, schema.name if named else None, children, dictionary)


def difference(one, other, path="schema"):
    """The first difference of two layouts, which differ."""
    if one[0] != other[0]:
        return f"{path} has the format {_text(one[0])}, not {_text(other[0])}"
    if one[1] != other[1]:
        return f"{path} has the name {_text(one[1])}, not {_text(other[1])}"
    if len(one[2]) != len(other[2]):
        return f"{path} has {len(one[2])} fields, not {len(other[2])}"
    for child, expected in zip(one[2], other[2]):
        if child != expected:
            return difference(child, expected, f"field {_text(expected[1])}")
    if one[3] is None or other[3] is None:
        return f"{path} is {'plain' if one[3] is None else 'dictionary-encoded'}"
    return difference(one[3], other[3], f"the dictionary of {path}")


def _text(encoded):
    return repr((encoded or b"").decode(errors="replace"))
