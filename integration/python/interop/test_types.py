"""Every type, in every variant, both ways, by both protocols, without a copy."""

import ctypes

import pyarrow as pa
import pytest

import abi
import arrays
import golib
import transfer

VARIANTS = golib.ext.cases()["variants"]
NAMES = [case["name"] for case in golib.ext.cases()["cases"]]


def each(names):
    return pytest.mark.parametrize("name, variant", [pytest.param(n, v, id=f"{n}-{v}") for n in names for v in VARIANTS])


each_case = each(arrays.CASES)
each_protocol = pytest.mark.parametrize("protocol", transfer.PROTOCOLS)

each_kind = pytest.mark.parametrize("kind", ["array", "batch"])


def go_object(kind, name, variant):
    return (golib.GoBatch if kind == "batch" else golib.GoArray).make(name, variant)


def pyarrow_object(kind, name, variant):
    case = arrays.CASES[name]
    return case.batch(variant) if kind == "batch" else case.array(variant)


def assert_shared(left, right, name, variant):
    """Zero copy; and that there was something to copy."""
    shared = transfer.same_memory(left, right)
    if variant not in ("empty", "empty_part") and name not in ("null", "struct_empty"):
        assert shared > 0


OFFSETS, WORDS = pa.array([0, 3], pa.int32()), pa.array(["x", "y"])


def around(array):
    """The array, and arrays that have it as a child or as indices."""
    return [
        array,
        pa.StructArray.from_arrays([array], ["a"]),
        pa.ListArray.from_arrays(OFFSETS, array),
        pa.DictionaryArray.from_arrays(array, WORDS),
    ]


@pytest.mark.parametrize("nulls", [True, False], ids=["nulls", "no nulls"])
def test_only_a_bitmap_without_nulls_may_be_missing(nulls):
    values = pa.array([0, 1, 0], pa.int64()).buffers()[1]
    bits = b"\5" if nulls else b"\7"

    def array(bitmap):
        return pa.Array.from_buffers(pa.int64(), 3, [bitmap, values])

    with_bitmap, copied, missing = (around(array(b)) for b in (pa.py_buffer(bits), pa.py_buffer(b"" + bits + b"\0"), None))
    for one, copy, none in zip(with_bitmap, copied, missing):
        assert transfer.same_memory(one, one) > 1
        for left, right in ((one, copy), (copy, one)):
            with pytest.raises(transfer.NotShared, match=r"buffers\[0\]"):
                transfer.same_memory(left, right)
        for left, right in ((one, none), (none, one)):
            if nulls:
                with pytest.raises(transfer.NotShared, match=r"buffers\[0\]"):
                    transfer.same_memory(left, right)
            else:
                assert transfer.same_memory(left, right) > 0


def test_python_states_every_case_of_go():
    assert sorted(NAMES) == sorted([*arrays.CASES, *arrays.WITHOUT_ARRAY_CLASS])


@each_case
@each_kind
@each_protocol
def test_go_arrives_in_pyarrow(protocol, kind, name, variant):
    with go_object(kind, name, variant) as go:
        arrow = transfer.to_pyarrow(go, protocol)
        arrow.validate(full=True)
        assert arrow.equals(pyarrow_object(kind, name, variant))
        assert_shared(go, arrow, name, variant)


@each_case
@each_kind
@each_protocol
def test_pyarrow_arrives_in_go(protocol, kind, name, variant):
    arrow = pyarrow_object(kind, name, variant)
    with transfer.to_go(arrow, protocol) as go, go_object(kind, name, variant) as want:
        assert go.difference(want) == ""
        assert_shared(go, arrow, name, variant)


@each_case
@each_protocol
def test_go_comes_back_from_pyarrow(protocol, name, variant):
    with golib.GoArray.make(name, variant) as go, transfer.to_go(transfer.to_pyarrow(go, protocol), protocol) as back:
        assert back.difference(go) == ""
        assert_shared(go, back, name, variant)


@each_case
@each_protocol
def test_pyarrow_comes_back_from_go(protocol, name, variant):
    arrow = arrays.CASES[name].array(variant)
    with transfer.to_go(arrow, protocol) as go:
        back = transfer.to_pyarrow(go, protocol)
    assert back.type == arrow.type
    assert back.equals(arrow)
    back.validate(full=True)
    assert_shared(arrow, back, name, variant)


@pytest.mark.parametrize("name", arrays.CASES)
@each_protocol
def test_nothing_without_buffers_arrives_in_pyarrow(protocol, name):
    """Arrow C++ requires offsets even if the array is empty."""
    with golib.GoArray.make_bare(name) as go:
        arrow = transfer.to_pyarrow(go, protocol)
        arrow.validate(full=True)
        assert arrow.equals(arrays.CASES[name].array("empty"))


@pytest.mark.parametrize("name", ["utf8", "large_utf8", "list", "map", "binary_view"])
def test_nothing_with_null_buffers_passes_through_go(name):
    """Go accepts arrays that Arrow C++ rejects, and exports them so that Arrow C++
    accepts them."""
    with golib.GoArray.make(name, "empty") as go, abi.structs() as s:
        go._export_to_c_device(*s.addresses)
        nulls = (ctypes.c_void_p * s.array.array.n_buffers)()
        s.array.array.buffers = nulls
        with golib.GoArray._import_from_c_device(*s.addresses, full_validation=True) as taken:
            taken._export_to_c_device(*s.addresses)
            assert all(s.array.array.buffers[i] for i in range(1, s.array.array.n_buffers))
            arrow = pa.Array._import_from_c_device(*s.addresses)
            arrow.validate(full=True)
            assert len(arrow) == 0
            del arrow
