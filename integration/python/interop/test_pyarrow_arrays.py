"""Arrays in shapes that only PyArrow makes: PyArrow -> Go -> PyArrow, equal and
without a copy."""

import decimal

import pyarrow as pa
import pytest

import golib
import transfer


class Celsius(pa.ExtensionType):
    """An extension type that Python knows and Go does not."""

    def __init__(self, storage=pa.float32(), place="outside"):
        self.place = place
        super().__init__(storage, "arrowdevice.test.celsius")

    def __arrow_ext_serialize__(self):
        return self.place.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls(storage, serialized.decode())


class Stranger(Celsius):
    """An extension type that, when it comes back, Python does not know either."""

    def __init__(self, storage=pa.float32()):
        pa.ExtensionType.__init__(self, storage, "arrowdevice.test.stranger")

    def __arrow_ext_serialize__(self):
        return b"\x00\xff not text"


@pytest.fixture(autouse=True)
def celsius():
    pa.register_extension_type(Celsius())
    yield
    pa.unregister_extension_type("arrowdevice.test.celsius")


TEXTS = ["a", None, "ccc", "four and more than twelve bytes", "", "six", None, "eight and more than twelve bytes"]


def texts(type=pa.string()):
    return pa.array(TEXTS, type)


def numbers(type=pa.int32()):
    return pa.array([1, None, 3, 4, 5, 6, None, 8], type)


def dictionary(index=pa.int8()):
    return pa.DictionaryArray.from_arrays(pa.array([2, 0, None, 1, 2, 2, 0, 1], index), pa.array(["x", None, "z"]))


def mask(n=8):
    return pa.array([i % 3 == 1 for i in range(n)])


def from_buffers(type, length, buffers, **more):
    return pa.Array.from_buffers(type, length, [b if b is None else pa.py_buffer(b) for b in buffers], **more)


def views():
    """A view array with more than one data buffer."""
    return pa.concat_arrays([texts(pa.string_view()), pa.array(["nine, in another buffer of its own", "x"], pa.string_view())])


def struct():
    return pa.StructArray.from_arrays([numbers(), texts(), dictionary()], ["n", "t", "d"], mask=mask())


ARRAYS = {
    # Offsets.
    "offset_of_one": lambda: numbers().slice(1),
    "offset_within_a_byte_of_bits": lambda: pa.array([True, False, None] * 9, pa.bool_()).slice(5, 13),
    "offset_beyond_a_byte_of_bits": lambda: pa.array([True, False, None] * 9, pa.bool_()).slice(17),
    "slice_of_a_slice": lambda: texts().slice(2).slice(1, 3),
    "slice_without_nulls": lambda: numbers().slice(2, 3),
    "slice_of_list": lambda: pa.array([[1, 2], [3], None, [4, 5, 6], []]).slice(1, 3),
    "slice_of_list_of_list": lambda: pa.array([[["a"], []], None, [["b", "c"], None], [["d"]]]).slice(1, 3),
    "slice_of_fixed_size_list": lambda: pa.array([[1, 2], None, [3, None], [5, 6]], pa.list_(pa.int8(), 2)).slice(1, 2),
    "slice_of_struct": lambda: struct().slice(3, 4),
    "struct_of_slices": lambda: pa.StructArray.from_arrays([numbers().slice(1, 5), texts().slice(3)], ["n", "t"]),
    "slice_of_struct_of_slices": lambda: pa.StructArray.from_arrays(
        [numbers().slice(1, 5), texts().slice(3)], ["n", "t"], mask=mask(5)
    ).slice(1, 3),
    "list_of_slice": lambda: pa.ListArray.from_arrays(pa.array([0, 2, 5], pa.int32()), texts().slice(2)),
    "offsets_that_start_late": lambda: pa.ListArray.from_arrays(pa.array([3, 5, 8], pa.int32()), texts()),
    "slice_of_map": lambda: pa.array([[("a", 1)], None, [("b", None), ("c", 3)], []], pa.map_(pa.string(), pa.int8())).slice(1, 2),
    "slice_of_dictionary": lambda: dictionary().slice(1, 4),
    "slice_of_sparse_union": lambda: pa.UnionArray.from_sparse(pa.array([0, 1, 1, 0, 1, 0, 0, 1], pa.int8()), [numbers(), texts()]).slice(
        2, 5
    ),
    "sparse_union_of_slices": lambda: pa.UnionArray.from_sparse(
        pa.array([0, 1, 1, 0], pa.int8()), [numbers().slice(2, 4), texts().slice(1, 4)]
    ),
    "slice_of_dense_union": lambda: pa.UnionArray.from_dense(
        pa.array([0, 1, 1, 0, 1], pa.int8()), pa.array([0, 0, 2, 1, 3], pa.int32()), [numbers(), texts()]
    ).slice(1, 3),
    "slice_of_run_ends": lambda: pa.RunEndEncodedArray.from_arrays([2, 5, 6, 9], texts().slice(0, 4)).slice(3, 4),
    "slice_of_views": lambda: views().slice(3, 6),
    "slice_of_extension": lambda: pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([bytes(16), None, bytes(range(16))], pa.binary(16))
    ).slice(1),
    "empty_slice_at_the_end": lambda: texts().slice(8),
    # Nulls.
    "all_null": lambda: pa.nulls(5, pa.int64()),
    "all_null_strings": lambda: pa.nulls(5, pa.string()),
    "all_null_struct": lambda: pa.nulls(3, pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))])),
    "bitmap_without_nulls": lambda: from_buffers(pa.int8(), 4, [b"\x0f", b"\x01\x02\x03\x04"]),
    "unknown_null_count": lambda: from_buffers(pa.int8(), 4, [b"\x05", b"\x01\x02\x03\x04"], null_count=-1),
    "null_in_dictionary": lambda: dictionary(pa.uint16()),
    "null_runs": lambda: pa.RunEndEncodedArray.from_arrays(pa.array([1, 4, 9], pa.int64()), pa.array([None, 2.5, None])),
    "nulls_below_a_null_struct": lambda: pa.StructArray.from_arrays([numbers()], ["n"], mask=mask()),
    # Nesting.
    "list_of_null": lambda: pa.array([[None], [], None, [None, None]]),
    "list_of_run_ends": lambda: pa.ListArray.from_arrays(
        pa.array([0, 2, 5], pa.int32()), pa.RunEndEncodedArray.from_arrays([3, 5], ["a", "b"])
    ),
    "list_of_views": lambda: pa.ListArray.from_arrays(pa.array([0, 2, 10], pa.int32()), views()),
    "list_of_union": lambda: pa.ListArray.from_arrays(
        pa.array([0, 1, 4], pa.int32()),
        pa.UnionArray.from_sparse(pa.array([0, 1, 1, 0], pa.int8()), [numbers().slice(0, 4), texts().slice(0, 4)]),
    ),
    "union_of_nested": lambda: pa.UnionArray.from_dense(
        pa.array([0, 1, 0], pa.int8()), pa.array([0, 0, 1], pa.int32()), [pa.array([[1], None]), pa.array([{"a": "x"}])]
    ),
    "run_ends_of_struct": lambda: pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int16()), pa.array([{"a": 1}, None])),
    "map_of_struct": lambda: pa.array([[("k", {"a": [1, None]})], None, []], pa.map_(pa.string(), pa.struct([("a", pa.list_(pa.int8()))]))),
    "map_of_sorted_keys": lambda: pa.array([[(1, "a"), (2, None)]], pa.map_(pa.int32(), pa.string(), keys_sorted=True)),
    "list_view_out_of_order": lambda: pa.ListViewArray.from_arrays(
        pa.array([4, 0, 2, 2], pa.int32()), pa.array([3, 2, 4, 0], pa.int32()), texts(), mask=pa.array([False, False, True, False])
    ),
    "large_list_view_overlapping": lambda: pa.LargeListViewArray.from_arrays(
        pa.array([0, 1, 0], pa.int64()), pa.array([8, 3, 8], pa.int64()), numbers()
    ),
    "struct_of_dictionary_and_all": struct,
    "dictionary_of_list": lambda: pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int32()), pa.array([[1, 2], []])),
    "dictionary_of_struct": lambda: pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int64()), pa.array([{"a": "x"}, {"a": None}])),
    "dictionary_of_views": lambda: pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.uint8()), texts(pa.string_view())),
    "dictionary_of_slice": lambda: pa.DictionaryArray.from_arrays(pa.array([1, 0, 2], pa.int8()), texts().slice(2)),
    "dictionary_of_dictionary": lambda: pa.DictionaryArray.from_arrays(pa.array([1, 0, 5], pa.int8()), dictionary()),
    "unused_dictionary": lambda: pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], pa.string())),
    "deep": lambda: nested(40),
    # Widths, zones and other parameters.
    "fixed_size_binary_of_nothing": lambda: pa.array([b"", None, b""], pa.binary(0)),
    "fixed_size_binary_of_33_bytes": lambda: pa.array([bytes(33), None], pa.binary(33)),
    "negative_scale": lambda: pa.array([decimal.Decimal("12E2"), None], pa.decimal128(5, -2)),
    "zone_by_offset": lambda: pa.array([0, None, 1 << 40], pa.timestamp("ms", "+05:30")),
    "empty_zone_name_is_no_zone": lambda: pa.array([0], pa.timestamp("s", "")),
    "not_a_number": lambda: pa.array([0.0, -0.0, float("inf"), None], pa.float64()),
    "thousands": lambda: pa.array([None if i % 7 == 0 else f"text {i}" for i in range(10_000)]),
    # The owner of the memory.
    "memory_of_python": lambda: from_buffers(pa.binary(), 2, [None, b"\x00\x00\x00\x00\x02\x00\x00\x00\x05\x00\x00\x00", b"hello"]),
    "views_without_data": lambda: pa.array([b"short", None, b""], pa.binary_view()),
    "no_views": lambda: pa.array([], pa.string_view()),
    # Extension types that PyArrow brings along.
    "uuid_in_list": lambda: pa.array([[None, bytes(16)]], pa.list_(pa.binary(16))).cast(pa.list_(pa.uuid())),
    "json": lambda: pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(['{"a": 1}', None, "[]"])),
    "json_views": lambda: pa.ExtensionArray.from_storage(pa.json_(pa.string_view()), pa.array(['{"a": 1}', None], pa.string_view())),
    "opaque": lambda: pa.ExtensionArray.from_storage(pa.opaque(pa.binary(), "point", "a vendor"), pa.array([b"x", None])),
    "fixed_shape_tensor": lambda: pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int8(), (2, 2), dim_names=("x", "y")), pa.array([[1, 2, 3, 4], None], pa.list_(pa.int8(), 4))
    ),
    "dictionary_of_extension": lambda: pa.DictionaryArray.from_arrays(
        pa.array([0, 0], pa.int8()), pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16)))
    ),
}

for _storage in (numbers, texts, views, dictionary, struct, lambda: texts(pa.large_string())):
    ARRAYS[f"registered extension of {_storage().type}"] = lambda make=_storage: celsius_of(make())
ARRAYS["registered_extension_in_list"] = lambda: pa.ListArray.from_arrays(
    pa.array([0, 2, 3], pa.int32()), celsius_of(pa.array([1.5, None, 3.5], pa.float32()))
)


def celsius_of(storage):
    return pa.ExtensionArray.from_storage(Celsius(storage.type, "inside"), storage)


def nested(depth):
    array = pa.array([1, None, 3])
    for _ in range(depth):
        array = pa.ListArray.from_arrays(pa.array([0, len(array)], pa.int32()), array)
    return array


@pytest.mark.parametrize("make", ARRAYS.values(), ids=ARRAYS)
def test_array_comes_back(make):
    """Alone and as columns."""
    array = make()
    batch = pa.record_batch([array, array, pa.nulls(len(array))], names=["a", "", "a"])
    for arrow in (array, batch):
        arrow.validate(full=True)
        for protocol in transfer.PROTOCOLS:
            with transfer.to_go(arrow, protocol) as go:
                transfer.same_memory(go, arrow)
                golib.ext.free_memory()
                back = transfer.to_pyarrow(go, protocol)
            back.validate(full=True)
            assert back.equals(arrow), protocol
            assert back.schema == batch.schema if arrow is batch else back.type == array.type, protocol
            transfer.same_memory(arrow, back)


each_protocol = pytest.mark.parametrize("protocol", transfer.PROTOCOLS)


@each_protocol
def test_batch_without_columns_comes_back(protocol):
    batch = pa.RecordBatch.from_struct_array(pa.array([{}, {}, {}], pa.struct([])))
    with transfer.to_go(batch, protocol) as go:
        assert go.describe()["length"] == 3
        assert transfer.to_pyarrow(go, protocol).num_rows == 3


@each_protocol
def test_unregistered_extension_comes_back_as_its_storage_with_its_name(protocol):
    storage = pa.array([1.5, None], pa.float32())
    batch = pa.record_batch([pa.ExtensionArray.from_storage(Stranger(), storage)], names=["s"])
    with transfer.to_go(batch, protocol) as go:
        assert go.describe()["fields"][0]["type"] == "float32"
        back = transfer.to_pyarrow(go, protocol)
    assert back.column(0).equals(storage)
    assert back.schema.field(0).metadata == {
        b"ARROW:extension:name": b"arrowdevice.test.stranger",
        b"ARROW:extension:metadata": b"\x00\xff not text",
    }
