"""DLPack in Python: tensors over memory of the driver, and tensors of others."""

import ctypes

import numpy as np

import abi

CUDA = 2
READ_ONLY = 1
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


class Legacy(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_made = {}  # what a tensor needs, by its address


@_DELETER
def _delete(address):
    del _made[address]  # KeyError, which ctypes prints, for a second call


def made():
    """How many tensors of this module were not deleted."""
    return len(_made)


def export(address, shape, strides, dtype, owner, versioned):
    """A capsule of a tensor over memory of the first GPU, which keeps the owner. strides are in elements."""
    dtype = np.dtype(dtype)
    managed = Managed(1, 0) if versioned else Legacy()
    tensor = managed.tensor
    tensor.data, tensor.device_type, tensor.device_id, tensor.ndim = address, CUDA, 0, len(shape)
    tensor.code, tensor.bits, tensor.lanes = _CODES[dtype.kind], dtype.itemsize * 8, 1
    numbers = (ctypes.c_int64 * len(shape))(*shape), (ctypes.c_int64 * len(shape))(*strides)
    tensor.shape, tensor.strides = numbers
    managed.deleter = ctypes.cast(_delete, ctypes.c_void_p)
    at = ctypes.addressof(managed)
    _made[at] = managed, numbers, owner
    # Every capsule of these checks is taken: it needs no destructor.
    return abi.new_capsule(at, "dltensor_versioned" if versioned else "dltensor", None)


class Taken:
    """A tensor of a capsule, whose owner this is."""

    def __init__(self, capsule):
        name = abi.capsule_name(capsule)
        versioned = name == "dltensor_versioned"
        at = abi.capsule_pointer(capsule, name)
        abi.rename_capsule(capsule, "used_" + name)
        self._managed = (Managed if versioned else Legacy).from_address(at)
        tensor = self._managed.tensor
        self.flags = self._managed.flags if versioned else 0
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.shape = tuple(tensor.shape[: tensor.ndim])
        kind = {code: letter for letter, code in _CODES.items()}[tensor.code]
        self.dtype = np.dtype(f"{kind}{tensor.bits // 8}")
        self.device = tensor.device_type, tensor.device_id

    def __del__(self):
        managed = self.__dict__.pop("_managed", None)
        if managed is not None and managed.deleter:
            _DELETER(managed.deleter)(ctypes.addressof(managed))
