"""Go and Python read the same values: compared value by value, not only with
equality."""

import itertools
import json

import pyarrow as pa
import pytest

import arrays
import golib
import transfer


def written_alike(name):
    """Whether the values of a case are the same in Go's JSON and in Python."""
    case = arrays.CASES[name]
    plain = json.loads(json.dumps(case.values, default=str)) == case.values
    return plain and not name.startswith(("map", "duration", "extension_uuid", "sparse", "dense"))


ALIKE = [name for name in arrays.CASES if written_alike(name)]


def test_most_cases_are_written_alike():
    assert len(ALIKE) >= 35, ALIKE


@pytest.mark.parametrize("name", ALIKE)
def test_values_of_go_are_those_of_python(name):
    for variant in ("nulls", "valid", "sliced"):
        array = arrays.CASES[name].array(variant)
        with golib.GoArray.make(name, variant) as go, golib.GoArray.from_arrow(array, full_validation=True) as taken:
            assert pa.array(go).to_pylist() == go.values() == taken.values() == array.to_pylist(), variant


@pytest.mark.parametrize("protocol", transfer.PROTOCOLS)
def test_rows_of_a_batch(protocol):
    batch = pa.record_batch({"n": [1, None, 3], "t": ["a", "b", None], "l": [[1], [], None]})
    with transfer.to_go(batch, protocol) as go:
        assert go.values() == batch.to_pylist()
        assert transfer.to_pyarrow(go, protocol).to_pylist() == batch.to_pylist()


def test_slices_are_the_same_on_both_sides():
    array = arrays.CASES["struct_nested"].array("nulls")
    batch = pa.record_batch([array, arrays.CASES["list_utf8"].array("nulls").slice(0, len(array))], names=["s", "l"])
    for whole in (array, batch):
        with transfer.to_go(whole, "pointer") as go:
            for i, j in itertools.combinations_with_replacement(range(len(array) + 1), 2):
                with go.slice(i, j) as part:
                    arrow = transfer.to_pyarrow(part, "pointer")
                    arrow.validate(full=True)
                    assert arrow.equals(whole.slice(i, j - i))
                    transfer.same_memory(arrow, whole.slice(i, j - i))


def test_selected_columns_share_the_memory():
    batch = pa.record_batch({"n": [1, None, 3], "t": ["a", "b", None], "l": [[1], [], None]})
    with golib.GoBatch.from_arrow(batch) as go, go.select(2, 0, 2) as selected:
        arrow = pa.record_batch(selected)
        assert arrow.columns == [batch.column(i) for i in (2, 0, 2)]
        assert arrow.schema.names == ["l", "n", "l"]
        assert transfer.same_memory(arrow, pa.record_batch([batch.column(i) for i in (2, 0, 2)], names=arrow.schema.names)) > 0


def test_record_batch_is_a_struct_array():
    """C has one struct for both."""
    batch = pa.record_batch({"n": [1, None, 3], "t": ["a", "b", None]})
    with golib.GoBatch.from_arrow(batch) as go:
        assert pa.array(go).equals(batch.to_struct_array())
    with golib.GoArray.from_arrow(batch.to_struct_array()) as go:
        assert pa.record_batch(go).equals(batch)
    with golib.GoBatch.from_arrow(batch.to_struct_array()) as go:
        assert pa.record_batch(go).equals(batch)


def test_table_is_made_of_a_go_batch():
    with golib.GoBatch.make("utf8", "nulls") as go:
        table = pa.table(go)
        assert table.column("a").chunk(0).equals(arrays.CASES["utf8"].array("nulls"))
        assert transfer.same_memory(go, table.to_batches()[0]) > 0
