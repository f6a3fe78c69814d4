"""What the tests of DLPack tensors on the CPU have in common."""

import numpy as np
import pyarrow as pa
import pytest

import godlpack
from golib import GoArray

NUMBERS = [np.dtype(name) for name in "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()]
TAKES = pytest.mark.parametrize("take", [godlpack.from_dlpack, godlpack.from_dlpack_legacy], ids=["versioned", "legacy"])


def list_type(dtype, *sizes):
    out = pa.from_numpy_dtype(dtype)
    for size in reversed(sizes):
        out = pa.list_(out, size)
    return out


def go_array(values, dtype, *sizes):
    return GoArray.from_arrow(pa.array(values, list_type(dtype, *sizes)))
