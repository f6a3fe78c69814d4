"""Behaviour of PyArrow that this library relies on. A test that fails with a new
version of PyArrow shows which part of the library to review."""

import ctypes

import pyarrow as pa
import pytest

import abi
import golib


@pytest.mark.parametrize("view", [pa.binary_view(), pa.string_view()], ids=str)
def test_empty_slice_of_views_is_not_valid_after_any_import(view):
    """Arrow C++ gives the buffer of an empty array no bytes, and then finds that
    they do not reach to its offset: also after its own export, without a device.
    The array itself is in order. test_types.assert_valid knows of it."""
    array = pa.array(["a", "b", "c"], view).slice(2, 0)
    array.validate(full=True)
    imported = pa.Array._import_from_c_capsule(*array.__arrow_c_array__())
    with pytest.raises(pa.ArrowInvalid, match="View buffer size .* isn't large enough for length: 0 and offset: 2"):
        imported.validate()
    assert imported.equals(array)


def test_array_of_another_type_is_not_cast():
    """pa.array casts an array that a producer returned in another type than the
    requested one, but calls the function where it means the array."""
    with golib.GoArray.make("int64", "nulls") as go, pytest.raises(AttributeError, match="has no attribute 'cast'"):
        pa.array(go, type=pa.int8())


@pytest.mark.parametrize("name", ["utf8", "large_utf8", "list", "map"])
def test_null_offsets_are_rejected_where_there_is_nothing_to_read(name):
    """So every export has offsets, also of nothing."""
    with golib.GoArray.make(name, "empty") as go, abi.structs() as s:
        go._export_to_c_device(*s.addresses)
        assert s.array.array.buffers[1]
        s.array.array.buffers = (ctypes.c_void_p * s.array.array.n_buffers)()
        with pytest.raises(pa.ArrowInvalid, match="null data pointer for a buffer with non-zero computed size"):
            pa.Array._import_from_c_device(*s.addresses)


@pytest.mark.parametrize("member, text", [("offset", "non-zero offset"), ("null_count", "null")])
def test_root_of_a_batch_has_no_offset_and_no_nulls(member, text):
    with golib.GoBatch.make("int64", "nulls") as go, abi.structs() as s:
        go._export_to_c_device(*s.addresses)
        assert getattr(s.array.array, member) == 0
        setattr(s.array.array, member, 1)
        with pytest.raises(pa.ArrowInvalid, match=text):
            pa.RecordBatch._import_from_c_device(*s.addresses)


@pytest.mark.parametrize("name", ["sparse_union", "dense_union"])
def test_null_count_of_a_union_is_known(name):
    with golib.GoArray.make(name, "nulls") as go, abi.structs() as s:
        go._export_to_c_device(*s.addresses)
        assert s.array.array.null_count == 0
        s.array.array.null_count = -1
        with pytest.raises(pa.ArrowInvalid, match="null"):
            pa.Array._import_from_c_device(*s.addresses)


def test_views_without_data_have_no_sizes():
    """The last buffer, with the sizes of the others, is NULL when there are none."""
    with abi.structs() as s:
        pa.array([None], pa.binary_view())._export_to_c_device(*s.addresses)
        assert s.array.array.n_buffers == 3
        assert s.array.array.buffers[2] is None


def test_exports_are_labelled_as_plain_memory():
    with abi.structs() as s:
        pa.array([1, None])._export_to_c_device(*s.addresses)
        assert (s.array.device_type, s.array.device_id, s.array.sync_event) == (abi.CPU, -1, None)
        assert s.array.array.null_count == 1


def test_null_count_of_a_slice_is_counted_by_the_export():
    with abi.structs() as s:
        pa.array([1, None, 3]).slice(1, 2)._export_to_c_device(*s.addresses)
        assert s.array.array.null_count == 1


def test_imports_are_labelled_as_plain_memory():
    with golib.GoArray.make("utf8", "nulls") as array, golib.GoBatch.make("utf8", "nulls") as batch:
        for arrow in (pa.array(array), pa.record_batch(batch)):
            assert arrow.is_cpu
            assert arrow.device_type == pa.DeviceAllocationType.CPU


def test_there_are_no_device_streams():
    assert not hasattr(pa.RecordBatchReader, "__arrow_c_device_stream__")
    assert not hasattr(pa.Table, "__arrow_c_device_stream__")


def test_children_of_an_imported_batch_share_one_release():
    """PyArrow moves the whole struct: Go hears of it once, when the last column
    is gone."""
    with golib.GoBatch.make("int64", "nulls") as go:
        batch = pa.record_batch(go)
    first, second = batch.columns
    del batch, first
    assert golib.stats()["exported_arrays"] == 1
    assert second.to_pylist()[0] == 1
    del second
    assert golib.stats()["exported_arrays"] == 0
