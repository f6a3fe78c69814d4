"""Go's arrays as DLPack tensors, and tensors as Go's arrays."""

import ctypes
import warnings

import abi
from golib import GoArray
from golibrary import _create, _lib

_NAMES = {False: b"dltensor", True: b"dltensor_versioned"}
_USED = {False: b"used_dltensor", True: b"used_dltensor_versioned"}
_DESTRUCTORS = {
    versioned: ctypes.cast(function, ctypes.c_void_p)
    for versioned, function in {
        False: _lib.golib_destroy_dltensor_capsule,
        True: _lib.golib_destroy_dltensor_versioned_capsule,
    }.items()
}

_api = ctypes.pythonapi
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_size_t
_api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_GetName.argtypes = [ctypes.py_object]
_api.PyCapsule_GetName.restype = ctypes.c_char_p
_api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]


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
        tensor = _create("export_dlpack", self._go.handle, versioned, stream or 0, stream is None)
        return _api.PyCapsule_New(tensor, _NAMES[versioned], _DESTRUCTORS[versioned])


class _LegacyTensor(Tensor):
    def __dlpack__(self, *, stream=None, **_):
        return self._export(False, stream)


def take(capsule, with_gil=False):
    """The tensor of a capsule as an array of Go's. The capsule is renamed, since Go owns the tensor,
    even if it is refused."""
    versioned = bool(_api.PyCapsule_IsValid(capsule, _NAMES[True]))
    address = _api.PyCapsule_GetPointer(capsule, _NAMES[versioned])  # ValueError for another name
    _api.PyCapsule_SetName(capsule, _USED[versioned])
    return GoArray(_create("import_dlpack", address, versioned, with_gil))


def from_dlpack(source, **arguments):
    """An array of Go's from any object with __dlpack__."""
    arguments.setdefault("max_version", (1, 2))
    return take(source.__dlpack__(**arguments))


def from_dlpack_legacy(source):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PyArrow's, of this form
        return take(source.__dlpack__())
