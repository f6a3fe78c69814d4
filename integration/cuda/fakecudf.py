"""What pylibcudf 26.10 does with Arrow objects, without libcudf: which protocols it asks for, in which order and how, and
what becomes of the structs. The objects that it makes can be read by Go instead of kernels."""

import ctypes

import abi
import capsules


class _Held:
    """What libcudf keeps: the structs, which it moved out of the capsules."""

    def __init__(self, schema, array):
        self.schema, self.array = abi.ArrowSchema(), abi.ArrowDeviceArray()
        for capsule, name, to in [(schema, "arrow_schema", self.schema), (array, "arrow_device_array", self.array)]:
            source = type(to).from_address(abi.capsule_pointer(capsule, name))
            assert abi.is_filled(source)
            ctypes.memmove(ctypes.addressof(to), ctypes.addressof(source), ctypes.sizeof(to))
            abi._owner(source).release = None

    def release(self):
        """The end of the object, without Python's lock: ctypes gives it away."""
        abi.release(self.array)
        abi.release(self.schema)

    def shared(self, schema):
        """What libcudf exports of the object, once, under a schema. It takes the structs."""
        abi.release(self.schema)
        return capsules.Produced(schema, self.array)


def _device_array(obj):
    schema, array = obj.__arrow_c_device_array__()
    return _Held(schema, array)


class Table:
    """pylibcudf.Table."""

    @staticmethod
    def from_arrow(obj):
        if hasattr(obj, "__arrow_c_device_array__"):
            return _device_array(obj)
        if hasattr(obj, "__arrow_c_stream__"):
            return obj.__arrow_c_stream__()
        if hasattr(obj, "__arrow_c_device_stream__"):
            raise NotImplementedError("device streams")
        raise ValueError("no Arrow object")


class Column:
    """pylibcudf.Column."""

    @staticmethod
    def from_arrow(obj):
        if hasattr(obj, "__arrow_c_device_array__"):
            return _device_array(obj)
        if hasattr(obj, "__arrow_c_array__"):
            return obj.__arrow_c_array__()
        if hasattr(obj, "__arrow_c_stream__"):
            return obj.__arrow_c_stream__()
        if hasattr(obj, "__arrow_c_device_stream__"):
            raise NotImplementedError("device streams")
        raise ValueError("no Arrow object")
