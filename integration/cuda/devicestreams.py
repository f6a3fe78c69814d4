"""Device streams whose other side is Python: nanoarrow 0.6.0 has arrays on a device,
but of device streams only one that it makes of a plain stream, and none that it reads."""

import ctypes

from nanoarrow.c_schema import allocate_c_schema
from nanoarrow.device import c_device_array

import abi
import capsules


class Schema:
    """A schema that a stream gave."""

    def __init__(self, stream):
        self._schema = allocate_c_schema()
        assert abi.get_schema(stream, abi.ArrowSchema.from_address(self._schema._addr())) == 0

    def __arrow_c_schema__(self):
        return self._schema.__arrow_c_schema__()


def next_array(stream, schema):
    """The next array of a stream, as a nanoarrow device array; None at the end."""
    struct = abi.ArrowDeviceArray()
    assert abi.get_next(stream, struct) == 0, abi.last_error(stream)
    if not abi.is_filled(struct):
        return None
    return c_device_array(capsules.Produced(schema, struct))


def arrays_of(stream):
    """All arrays of a stream."""
    schema = Schema(stream)
    return list(iter(lambda: next_array(stream, schema), None))


def _move(source, target):
    """Moves a struct with a release callback, and leaves the source released."""
    ctypes.memmove(ctypes.addressof(target), ctypes.addressof(source), ctypes.sizeof(source))
    (source.array if isinstance(source, abi.ArrowDeviceArray) else source).release = None


class Made:
    """A device stream made of go.Handed arrays, which it gives in their order. It records the calls."""

    def __init__(self, items, device_type=abi.CUDA):
        self.items, self.calls = list(items), []
        self._schema, self._given = items[0], 0
        self._callbacks = [
            abi.GET(self._get_schema), abi.GET(self._get_next), abi.GET_LAST_ERROR(self._get_last_error), abi.RELEASE(self._release),
        ]  # fmt: skip
        addresses = (ctypes.cast(callback, ctypes.c_void_p) for callback in self._callbacks)
        self.struct = abi.ArrowDeviceArrayStream(device_type, *addresses)
        self.address = ctypes.addressof(self.struct)

    @property
    def releases(self):
        return self.calls.count("release")

    def _get_schema(self, _, out):
        self.calls.append("get_schema")
        capsule, _ = self._schema.__arrow_c_device_array__()
        source = abi.ArrowSchema.from_address(abi.capsule_pointer(capsule, "arrow_schema"))
        _move(source, abi.ArrowSchema.from_address(out))
        return 0

    def _get_next(self, _, out):
        self.calls.append("get_next")
        target = abi.ArrowDeviceArray.from_address(out)
        if self._given == len(self.items):
            target.array.release = None
            return 0
        self._given += 1
        _move(self.items[self._given - 1].struct, target)
        return 0

    def _get_last_error(self, _):
        return None

    def _release(self, stream):
        self.calls.append("release")
        abi.ArrowDeviceArrayStream.from_address(stream).release = None
