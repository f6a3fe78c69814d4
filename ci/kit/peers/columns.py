"""The Arrow device interface over a peer's array, by ctypes: with the event of its stream."""

import ctypes

import abi
import capsules
import driver
import work

import numpy as np

_FORMATS = {
    "int8": b"c", "uint8": b"C", "int16": b"s", "uint16": b"S", "int32": b"i", "uint32": b"I", "int64": b"l", "uint64": b"L",
    "float16": b"e", "float32": b"f", "float64": b"g",
}  # fmt: skip

_NAMES = {letter.decode(): name for name, letter in _FORMATS.items()}

_schemas = {}


@ctypes.CFUNCTYPE(None, ctypes.POINTER(abi.ArrowSchema))
def _release_schema(schema):
    schema.contents.release = None


def _schema(name):
    """A capsule of a schema without memory of its own."""
    struct = abi.ArrowSchema(_FORMATS[name], b"", None, 0, 0, None, None)
    struct.release = ctypes.cast(_release_schema, ctypes.c_void_p).value
    at = ctypes.addressof(struct)
    _schemas[at] = struct  # for the life of the process: they are few
    return abi.new_capsule(at, "arrow_schema", None)


class Event:
    """A CUevent, which is destroyed with this object."""

    def __init__(self, stream):
        self.value = work.record(stream)

    def __del__(self):
        driver.call("cuEventDestroy_v2", self.value)


class Column:
    """Elements of a peer's array for one consumer. stream, a handle, is the one with the work on the array; None for none."""

    def __init__(self, array, address, length, name, stream=None, offset=0):
        self._name = name
        self._event = None if stream is None else Event(stream)
        tree = capsules.Tree(length, None, address, offset=offset, keep=(array, self._event))
        event = None if self._event is None else ctypes.addressof(self._event.value)
        self._struct = capsules.export(tree, abi.CUDA, 0, event)

    def __arrow_c_device_array__(self, requested_schema=None, **_):
        return _schema(self._name), capsules.device_array(self._struct)


class Held:
    """An array of Go's as a consumer of the Arrow device interface holds it: addresses, and the event."""

    def __init__(self, source):
        self._capsules = source.__arrow_c_device_array__()
        schema = abi.ArrowSchema.from_address(abi.capsule_pointer(self._capsules[0], "arrow_schema"))
        # Not by another protocol, which may order streams: a check is of this one.
        self.dtype = np.dtype(_NAMES[schema.format.decode()])
        self._struct = abi.ArrowDeviceArray.from_address(abi.capsule_pointer(self._capsules[1], "arrow_device_array"))
        array = self._struct.array
        self.length, self.offset = array.length, array.offset
        self.device = self._struct.device_type, self._struct.device_id
        self.data = array.buffers[1] or 0
        at = self._struct.sync_event
        self.event = ctypes.c_void_p.from_address(at).value if at else None

    def wait(self, stream):
        """Makes later work of a stream wait for the event."""
        if self.event is not None:
            driver.call("cuStreamWaitEvent", driver.handle(stream), driver.handle(self.event), 0)
