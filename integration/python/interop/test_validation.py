"""Arrays that PyArrow makes without looking, and full validation refuses: with an
error that names the place, and each struct released once."""

import ctypes
import os
import re
import signal
import struct
import subprocess
import sys

import pyarrow as pa
import pytest

import abi
import golib


def int32s(*values):
    return struct.pack(f"<{len(values)}i", *values)


def int64s(*values):
    return struct.pack(f"<{len(values)}q", *values)


def buffers(type, length, *contents, **more):
    return pa.Array.from_buffers(type, length, [c if c is None else pa.py_buffer(c) for c in contents], **more)


class Damage:
    """A valid array, and the bytes that are later written to its buffer i: for errors
    that PyArrow would detect when it makes the array, or nests it."""

    def __init__(self, array, i, contents):
        self.array, self.i, self.contents = array, i, contents

    def do(self):
        buffer = self.array.buffers()[self.i]
        assert len(self.contents) <= buffer.size
        ctypes.memmove(buffer.address, self.contents, len(self.contents))


def make_corrupted(make, place=lambda array: array):
    made = make()
    if not isinstance(made, Damage):
        return place(made)
    placed = place(made.array)
    made.do()
    return placed


def inline_view(text):
    return int32s(len(text)) + text.ljust(12, b"\0")


def far_view(length, prefix, index, offset):
    return int32s(length) + prefix + int32s(index, offset)


LETTERS = ["a", "b", "c"]


def entries(keys, values, bitmap=None):
    return pa.Array.from_buffers(
        pa.struct([pa.field("key", keys.type, nullable=False), pa.field("value", values.type)]),
        len(keys), [bitmap and pa.py_buffer(bitmap)], children=[keys, values])


def one_map(pairs):
    return buffers(pa.map_(pairs.type[0].type, pairs.type[1].type), 1, None, int32s(0, len(pairs)), children=[pairs])


def numbers():
    return pa.array([1, 2, 3], pa.int64())


def union(mode, ids, *more, children=None):
    fields = [pa.field("n", pa.int64()), pa.field("m", pa.int64())]
    return buffers(pa.union(fields, mode, [4, 6]), len(ids), None, bytes(ids), *more, children=children or [numbers(), numbers()])


def run_ends(*ends, type=pa.int32()):
    return buffers(pa.run_end_encoded(type, pa.int64()), 3, None, children=[pa.array(ends, type), numbers()])


# The fault, and the parts of the error text: the place, and the value there.
CORRUPTED = {
    "offset_decreases": (lambda: buffers(pa.binary(), 2, None, int32s(0, 5, 3), b"hello"), "offsets[2] = 3, want"),
    "first_offset_negative": (lambda: Damage(pa.array([b"h", b"ello"]), 1, int32s(-1)), "offsets[0] = -1, want"),
    "last_offset_negative": (lambda: Damage(pa.array([b"hello"]), 1, int32s(0, -5)), "offsets[1] = -5, want"),
    "large_offset_decreases": (lambda: buffers(pa.large_string(), 2, None, int64s(0, 5, 3), b"hello"), "offsets[2] = 3, want"),
    "list_offset_beyond_child": (lambda: Damage(pa.array([[1, 2], [3]]), 1, int32s(0, 2, 4)), "offsets[2] = 4, want"),
    "large_list_offset_decreases": (
        lambda: buffers(pa.large_list(pa.int64()), 2, None, int64s(0, 2, 1), children=[numbers()]),
        "offsets[2] = 1, want",
    ),
    "map_offset_beyond_entries": (
        lambda: Damage(pa.array([[(1, 1), (2, 2), (3, 3)]], pa.map_(pa.int64(), pa.int64())), 1, int32s(0, 9)),
        "offsets[1] = 9, want",
    ),
    "list_view_offset_beyond_child": (
        lambda: buffers(pa.list_view(pa.int64()), 1, None, int32s(4), int32s(0), children=[numbers()]),
        "offsets[0] = 4, want",
    ),
    "list_view_size_beyond_child": (
        lambda: buffers(pa.large_list_view(pa.int64()), 1, None, int64s(1), int64s(3), children=[numbers()]),
        "sizes[0] = 3, want",
    ),
    "text_is_not_utf8": (
        lambda: buffers(pa.string(), 2, None, int32s(0, 1, 3), b"a\xff\xff"),
        "values[1], want valid UTF-8: invalid",
    ),
    "text_view_is_not_utf8": (
        lambda: buffers(pa.string_view(), 2, None, inline_view(b"ok") + inline_view(b"\xc3")),
        "values[1], want valid UTF-8: invalid",
    ),
    "view_length_negative": (lambda: buffers(pa.binary_view(), 1, None, int32s(-1, 0, 0, 0)), "views[0].length = -1, want"),
    "view_buffer_missing": (
        lambda: buffers(pa.binary_view(), 1, None, far_view(20, b"xxxx", 1, 0), b"x" * 20),
        "views[0].buffer_index = 1, want",
    ),
    "view_beyond_its_buffer": (
        lambda: buffers(pa.binary_view(), 1, None, far_view(20, b"xxxx", 0, 1), b"x" * 20),
        "views[0].offset = 1, want",
    ),
    "view_prefix_differs": (
        lambda: buffers(pa.binary_view(), 1, None, far_view(20, b"yyyy", 0, 0), b"x" * 20),
        "views[0].prefix = [121 121 121 121], want",
    ),
    "view_padding": (
        lambda: buffers(pa.string_view(), 1, None, int32s(2) + b"ok" + b"\0" * 9 + b"x"),
        "views[0].bytes[15] = 120, want 0 behind a value of 2 bytes: invalid",
    ),
    "view_padding_of_nothing": (
        lambda: buffers(pa.binary_view(), 2, None, inline_view(b"ok") + int32s(0, 0, 1, 0)),
        "views[1].bytes[8] = 1, want 0 behind a value of 0 bytes: invalid",
    ),
    "list_view_beyond_at_a_null": (
        lambda: buffers(pa.list_view(pa.int64()), 2, b"\x01", int32s(0, 9), int32s(1, 1), children=[numbers()]),
        "offsets[1] = 9, want",
    ),
    "offset_decreases_at_a_null": (
        lambda: buffers(pa.binary(), 3, b"\x05", int32s(0, 3, 1, 5), b"hello"),
        "offsets[2] = 1, want",
    ),
    "dictionary_index_too_large": (
        lambda: pa.DictionaryArray.from_arrays(pa.array([0, 3], pa.int8()), LETTERS, safe=False),
        "indices[1] = 3, want",
    ),
    "dictionary_index_negative": (
        lambda: pa.DictionaryArray.from_arrays(pa.array([0, -1], pa.int8()), LETTERS, safe=False),
        "indices[1] = -1, want",
    ),
    "null_count_too_small": (
        lambda: buffers(pa.int8(), 4, b"\x05", b"\x01\x02\x03\x04", null_count=1),
        "null_count = 1, want",
    ),
    "union_id_unknown": (lambda: union("sparse", [4, 5, 6]), "type_ids[1] = 5, want"),
    "dense_union_id_negative": (lambda: union("dense", [4, 255], int32s(0, 1)), "type_ids[1] = -1, want"),
    "union_offset_beyond_child": (lambda: union("dense", [4, 6], int32s(0, 3)), "offsets[1] = 3, want"),
    "union_offset_decreases": (lambda: union("dense", [4, 4], int32s(1, 0)), "offsets[1] = 0, want"),
    "run_ends_do_not_grow": (lambda: run_ends(2, 2, 3), "run_ends[1] = 2, want"),
    "run_ends_end_early": (lambda: Damage(run_ends(1, 3), 2, int32s(1, 2)), "run_ends[1] = 2, want"),
    "run_end_zero": (lambda: run_ends(0, 3, type=pa.int64()), "run_ends[0] = 0, want"),
}

each_corrupted = pytest.mark.parametrize("make, text", CORRUPTED.values(), ids=CORRUPTED)


@each_corrupted
def test_both_refuse_what_is_corrupted(make, text):
    """So that what Go refuses is no matter of opinion."""
    with pytest.raises((pa.ArrowInvalid, pa.ArrowIndexError)):
        make_corrupted(make).validate(full=True)
    with abi.structs() as s:
        make_corrupted(make)._export_to_c_device(*s.addresses)
        releases = abi.count_releases(s.array), abi.count_releases(s.schema)
        with pytest.raises(golib.GoError, match=re.escape("cdevice: validate: array." + text)):
            golib.GoArray._import_from_c_device(*s.addresses, full_validation=True)
        assert [r.count for r in releases] == [1, 1]
        assert s.released


# The places of an array in others, and their names in the error.
PLACES = {
    "column[1].": lambda array: pa.record_batch([pa.nulls(len(array)), array], names=["a", "b"]),
    "array.children[0].": lambda array: pa.StructArray.from_arrays([array], ["s"]),
    "array.dictionary.": lambda array: pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), array),
}


@pytest.mark.parametrize("path, place", PLACES.items(), ids=PLACES)
def test_the_error_names_the_place(place, path):
    make, text = CORRUPTED["dictionary_index_too_large"]
    arrow = make_corrupted(make, place)
    with abi.structs() as s:
        arrow._export_to_c_device(*s.addresses)
        cls = golib.GoBatch if isinstance(arrow, pa.RecordBatch) else golib.GoArray
        with pytest.raises(golib.GoError, match=re.escape("cdevice: validate: " + path + text)):
            cls._import_from_c_device(*s.addresses, full_validation=True)


def test_pyarrow_ends_the_process_over_a_map_with_null_keys():
    """Programs that pass on untrusted arrays import them with full validation first."""
    program = """
import pyarrow as pa, abi
pairs = pa.StructArray.from_arrays([pa.array([1, None]), pa.array([1, 2])], names=["key", "value"])
with abi.structs() as s, abi.structs() as other:
    pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), pairs)._export_to_c_device(s.addresses[0], other.addresses[1])
    pa.map_(pa.int64(), pa.int64())._export_to_c(s.addresses[1])
    pa.Array._import_from_c_device(*s.addresses)
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=os.path.dirname(golib.__file__), capture_output=True, text=True)
    assert ended.returncode == -signal.SIGABRT
    assert "Map array keys array should have no nulls" in ended.stderr


# Bytes that no element refers to, or only a null, may have any value.
ODD = {
    "text_at_a_null": lambda: buffers(pa.string(), 2, b"\x01", int32s(0, 1, 3), b"a\xff\xff"),
    "view_at_a_null": lambda: buffers(pa.string_view(), 2, b"\x01", inline_view(b"ok") + int32s(-7, -7, -7, -7)),
    "view_padding_at_a_null": lambda: buffers(pa.string_view(), 2, b"\x01", inline_view(b"ok") + int32s(1, 1, 1, 1)),
    "index_at_a_null": lambda: pa.DictionaryArray.from_buffers(
        pa.dictionary(pa.int8(), pa.string()), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(b"\x00\x63")], pa.array(LETTERS)),
    "text_between_values": lambda: buffers(pa.string_view(), 2, None, far_view(20, b"xxxx", 0, 0) + far_view(20, b"xxxx", 0, 21), b"x" * 20 + b"\xff" + b"x" * 20),
    "views_that_share": lambda: buffers(pa.string_view(), 3, None, far_view(40, b"xxxx", 0, 0) * 2 + far_view(20, b"xxxx", 0, 10), b"x" * 40),
    "null_value_of_a_map": lambda: one_map(entries(pa.array([1, 2]), pa.array([None, 2]))),
    "map_null": lambda: buffers(pa.map_(pa.int64(), pa.int64()), 2, b"\x01", int32s(0, 1, 2), children=[entries(pa.array([1, 2]), pa.array([3, 4]))]),
    "runs_too_long": lambda: run_ends(1, 2, 9),
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_odd_contents_are_accepted_by_both(make):
    arrow = make()
    arrow.validate(full=True)
    with abi.structs() as s, abi.structs() as onward:
        arrow._export_to_c_device(*s.addresses)
        with golib.GoArray._import_from_c_device(*s.addresses, full_validation=True) as go:
            go._export_to_c_device(*onward.addresses)
            back = pa.Array._import_from_c_device(*onward.addresses)
    back.validate(full=True)
    assert back.equals(arrow)


@each_corrupted
def test_without_full_validation_it_is_only_carried(make, text):
    """An import reads no data, so that it neither notices nor stumbles; and it
    goes on as it came."""
    with abi.structs() as s, abi.structs() as onward:
        make_corrupted(make)._export_to_c_device(*s.addresses)
        before = abi.buffer_addresses(s.array.array)
        with golib.GoArray._import_from_c_device(*s.addresses) as go:
            go._export_to_c_device(*onward.addresses)
            after = abi.buffer_addresses(onward.array.array)
    assert len(before) == len(after)
    assert all(b in (None, a) for b, a in zip(before, after)), "only NULL may be replaced"
