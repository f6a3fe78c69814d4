"""Arrays of NumPy as columns: each gives its values, or an error that says what is wrong with it."""

import datetime

import numpy
import pyarrow as pa
import pytest

from arrowdevice import _host


def passed(ext, value):
    return ext.echo_array(value)


GRID = numpy.arange(6).reshape(2, 3)
COPIED = {
    "step": numpy.arange(10)[::2],
    "backwards": numpy.arange(5.0)[::-1],
    "steps backwards": numpy.arange(10, dtype="uint8")[8:1:-3],
    "column": GRID[:, 1],
    "transposed": GRID.T,
    "in order of Fortran": numpy.asfortranarray(GRID),
    "part of rows": GRID[:, :2],
    "repeated": numpy.broadcast_to(numpy.int64(3), (4,)),
    "big endian": numpy.arange(3, dtype=">i4"),
    "big endian backwards": numpy.arange(3, dtype=">f8")[::-1],
    "not aligned": numpy.frombuffer(bytes(range(17)), "int64", offset=1),
    "field of a struct": numpy.array([(1, 2.0), (3, 4.0)], "i4,f8")["f1"],
}


@pytest.mark.parametrize("name", COPIED)
def test_copies(ext, name):
    values = COPIED[name]
    with passed(ext, values) as array:
        assert array.to_pylist() == values.tolist()
        assert not numpy.shares_memory(numpy.from_dlpack(array), values)


@pytest.mark.parametrize("values", [numpy.arange(3), GRID, GRID[1:], numpy.arange(3, dtype="float16"), numpy.arange(9)[3:4:7]], ids=str)
def test_views(ext, values):
    for writeable in (True, False):
        values = values[:]
        values.flags.writeable = writeable
        assert _host.column_of(values) is values
        with passed(ext, values) as array:
            assert array.to_pylist() == values.tolist()
            assert numpy.shares_memory(numpy.from_dlpack(array), values)


BY_PYARROW = {
    "bool": (numpy.array([True, False, True])[::2], [True, True]),
    "text": (numpy.array(["x", "größer"]), ["x", "größer"]),
    "bytes": (numpy.array([b"x"]), [b"x"]),
    "objects": (numpy.array(["x", None], object), ["x", None]),
    "dates": (numpy.array(["2020-01-02", "NaT"], "datetime64[D]")[::-1], [None, datetime.date(2020, 1, 2)]),
    "times": (numpy.array([1, 2], "datetime64[ms]"), [datetime.datetime(1970, 1, 1, 0, 0, 0, 1000 * n) for n in (1, 2)]),
    "durations": (numpy.array([1], "timedelta64[s]"), [datetime.timedelta(seconds=1)]),
    "masked": (numpy.ma.array([1, 2, 3], mask=[0, 1, 0]), [1, None, 3]),
    "masked with a step": (numpy.ma.array([1, 2, 3], mask=[0, 1, 1])[::2], [1, None]),
    "without a masked value": (numpy.ma.array([1.5, 2]), [1.5, 2]),
}


@pytest.mark.parametrize("name", BY_PYARROW)
def test_dtypes_of_pyarrow(ext, name):
    values, wanted = BY_PYARROW[name]
    with passed(ext, values) as array:
        assert array.to_pylist() == wanted


REFUSED = {
    "mixed objects": (numpy.array([1, "x"], object), "Could not convert 'x'"),
    "complex": (numpy.arange(3, dtype="complex128"), "Unsupported numpy type"),
    "long double": (numpy.arange(3, dtype="longdouble"), "Unsupported numpy type"),
    "struct": (numpy.zeros(2, "i4,f8"), "Unsupported numpy type"),
    "bools in two dimensions": (numpy.ones((2, 2), bool), "1-dimensional"),
    "masked in two dimensions": (numpy.ma.array([[1, 2]], mask=[[0, 1]]), "1D"),
    "big endian dates": (numpy.array([1], ">M8[s]"), "Byte-swapped"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(ext, name):
    values, text = REFUSED[name]
    with pytest.raises((ValueError, NotImplementedError, TypeError), match=text):
        passed(ext, values)


def test_other_arguments_are_left_alone():
    for value in (None, 5, "x", [1], pa.array([1]), numpy.int64(3), numpy.array(3)):
        assert _host.column_of(value) is value
