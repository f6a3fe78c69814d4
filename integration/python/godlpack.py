"""Go's arrays as DLPack tensors, and tensors as Go's arrays."""

import ctypes
import warnings

import abi
from golib import GoArray, ext

_USED = {False: b"used_dltensor", True: b"used_dltensor_versioned"}  # a capsule keeps the address

_api = ctypes.pythonapi
_api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_GetName.argtypes = [ctypes.py_object]
_api.PyCapsule_GetName.restype = ctypes.c_char_p


def name_of(capsule):
    return _api.PyCapsule_GetName(capsule).decode()


class Tensor:
    """An array of Go's with the methods of the array API. The capsules hold the memory on
    their own. legacy is for a producer that only has the form before DLPack 1."""

    def __init__(self, go, legacy=False):
        self._go = go
        if legacy:
            self.__class__ = _LegacyTensor

    def __dlpack_device__(self):
        return (abi.CPU, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if dl_device not in (None, self.__dlpack_device__()) or copy:
            raise BufferError("an export copies nothing")
        return self._export(max_version is not None and max_version[0] >= 1, stream)

    def _export(self, versioned, stream):
        return self._go.object.__dlpack__(stream=stream, max_version=(1, 0) if versioned else None)


class _LegacyTensor(Tensor):
    def __dlpack__(self, *, stream=None, **_):
        return self._export(False, stream)


def take(capsule, with_gil=False):
    """The tensor of a capsule as an array of Go's. The capsule is renamed, since Go owns the tensor,
    even if it is refused."""
    versioned = name_of(capsule) == "dltensor_versioned"
    address = abi.capsule_pointer(capsule, "dltensor_versioned" if versioned else "dltensor")  # ValueError for another name
    _api.PyCapsule_SetName(capsule, _USED[versioned])
    return GoArray(ext.import_dlpack(address, versioned, with_gil))


def from_dlpack(source, **arguments):
    """An array of Go's from any object with __dlpack__."""
    arguments.setdefault("max_version", (1, 2))
    return take(source.__dlpack__(**arguments))


def from_dlpack_legacy(source):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PyArrow's, of this form
        return take(source.__dlpack__())
