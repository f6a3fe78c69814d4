"""Schemas keep more than their types: names, nullability, metadata, the order of
dictionaries, the keys and values of maps."""


import pyarrow as pa
import pytest

import abi
import golib
import transfer

each_protocol = pytest.mark.parametrize("protocol", transfer.PROTOCOLS)


def annotated_schema():
    """golib's annotatedSchema, in Python."""
    inner = pa.field("inner", pa.int16(), nullable=False, metadata={"depth": "1"})
    return pa.schema(
        [
            pa.field("nullable", pa.int64()),
            pa.field("required", pa.int64(), nullable=False),
            pa.field("ünïcode", pa.string(), metadata={"unit": "µm"}),
            pa.field("ordered", pa.dictionary(pa.int8(), pa.string(), ordered=True)),
            pa.field("unordered", pa.dictionary(pa.int8(), pa.string())),
            pa.field("sorted", pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False), keys_sorted=True)),
            pa.field("unsorted", pa.map_(pa.string(), pa.int32())),
            pa.field("struct", pa.struct([inner])),
            pa.field("list", pa.list_(inner), nullable=False),
        ],
        metadata={"schema": "of the batch", "empty": ""},
    )


@each_protocol
def test_annotations_arrive(protocol):
    """In PyArrow, in Go, and in PyArrow again."""
    with golib.GoBatch.make_annotated() as want:
        schema = transfer.to_pyarrow(want, protocol).schema
        assert schema.equals(annotated_schema(), check_metadata=True)
        with transfer.to_go(pa.RecordBatch.from_pylist([], annotated_schema()), protocol) as go:
            assert go.describe() == want.describe()
            assert go.difference(want) == ""
            assert transfer.to_pyarrow(go, protocol).schema.equals(annotated_schema(), check_metadata=True)
    assert schema.field("ordered").type.ordered and not schema.field("unordered").type.ordered
    assert schema.field("sorted").type.keys_sorted and not schema.field("unsorted").type.keys_sorted
    assert not schema.field("sorted").type.item_field.nullable and schema.field("unsorted").type.item_field.nullable


def test_go_describes_annotations_as_they_are():
    """So that the comparison of two descriptions is one of two schemas."""
    with golib.GoBatch.make_annotated() as go:
        got = go.describe()
    assert got["metadata"] == {"schema": "of the batch", "empty": ""}
    fields = {field["name"]: field for field in got["fields"]}
    assert list(fields) == annotated_schema().names
    assert [f["nullable"] for f in fields.values()] == [f.nullable for f in annotated_schema()]
    assert fields["ünïcode"]["metadata"] == {"unit": "µm"}
    assert "ordered=true" in fields["ordered"]["type"] and "ordered=false" in fields["unordered"]["type"]
    assert "keys_sorted" in fields["sorted"]["type"] and "keys_sorted" not in fields["unsorted"]["type"]
    assert fields["list"]["children"] == fields["struct"]["children"]
    assert fields["list"]["children"][0]["metadata"] == {"depth": "1"}
    assert fields["list"]["children"][0]["nullable"] is False


@each_protocol
def test_metadata_may_be_any_bytes(protocol):
    metadata = {b"bytes": b"\xff\x00\xfe", b"\xff\x00": b"a key of any bytes", b"": b"no key", b"no value": b"", "ключ".encode(): b"\x00"}
    batch = pa.RecordBatch.from_pylist([], pa.schema([pa.field("f", pa.int8(), metadata=metadata)], metadata=metadata))
    with transfer.to_go(batch, protocol) as go:
        back = transfer.to_pyarrow(go, protocol)
    assert back.schema.metadata == metadata
    assert back.schema.field(0).metadata == metadata


@each_protocol
def test_names_may_be_empty_or_the_same(protocol):
    batch = pa.record_batch([pa.array([1]), pa.array(["x"]), pa.array([2.5])], names=["", "same", "same"])
    with transfer.to_go(batch, protocol) as go:
        back = transfer.to_pyarrow(go, protocol)
    assert back.equals(batch)
    assert back.schema.names == ["", "same", "same"]


def test_selected_columns_keep_their_annotations():
    with golib.GoBatch.make_annotated() as go, go.select(5, 2, 2) as selected:
        schema = transfer.to_pyarrow(selected, "capsule").schema
    want = annotated_schema()
    assert schema.equals(pa.schema([want.field(5), want.field(2), want.field(2)], metadata=want.metadata), check_metadata=True)


def test_column_is_exported_with_its_field():
    with golib.GoBatch.make_annotated() as go:
        for i, field in enumerate(annotated_schema()):
            with go.column(i) as column:
                assert pa.field(column).equals(field, check_metadata=True)


def test_schema_capsule_is_the_schema_of_the_array_capsule():
    with golib.GoBatch.make_annotated() as go:
        assert pa.schema(go).equals(pa.record_batch(go).schema, check_metadata=True)
        assert pa.schema(go).equals(annotated_schema(), check_metadata=True)


def test_array_is_imported_with_a_type_that_the_consumer_knows():
    """_export_to_c_device without a schema, as for the batches of a stream."""
    with golib.GoArray.make("struct", "nulls") as go, abi.structs() as s:
        array_address, _ = s.addresses
        go._export_to_c_device(array_address)
        arrow = pa.Array._import_from_c_device(array_address, pa.struct([("x", pa.int32()), ("name", pa.string())]))
        assert arrow.equals(pa.array(go))
        assert not s.schema.release


def test_requested_schema_is_ignored_by_go():
    """A producer may ignore it; the consumer compares, and casts. (pa.array does
    not come so far when the type differs, see test_pyarrow.py; pa.record_batch does.)"""
    with golib.GoArray.make("int64", "nulls") as array:
        assert pa.array(array, type=pa.int64()).type == pa.int64()
        schema_capsule, array_capsule = array.__arrow_c_device_array__(pa.int8().__arrow_c_schema__())
        assert pa.Array._import_from_c_device_capsule(schema_capsule, array_capsule).type == pa.int64()
    with golib.GoBatch.make("int64", "nulls") as batch:
        wanted = pa.schema([("a", pa.int8()), ("b", pa.string())])
        arrow = pa.record_batch(batch, schema=wanted)
    assert arrow.schema == wanted
    assert arrow.column(1).to_pylist() == ["1", None, "3", "4", "5", "6", "7", None]


def test_requested_schema_is_honoured_by_pyarrow():
    capsules = pa.array([1, None, 3]).__arrow_c_device_array__(pa.int8().__arrow_c_schema__())
    with golib.GoArray.from_capsules(*capsules) as go:
        assert go.describe()["fields"][0]["type"] == "int8"
        assert go.values() == [1, None, 3]
