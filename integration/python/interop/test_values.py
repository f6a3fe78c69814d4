"""Go and Python read the same values: compared value by value, not only with
equality."""

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
each_alike = pytest.mark.parametrize("name", ALIKE)


def test_most_cases_are_written_alike():
    assert len(ALIKE) >= 35, ALIKE


@each_alike
@pytest.mark.parametrize("variant", ["nulls", "valid", "sliced"])
def test_go_values_are_python_values(name, variant):
    with golib.GoArray.make(name, variant) as go:
        assert pa.array(go).to_pylist() == go.values()


@each_alike
@pytest.mark.parametrize("variant", ["nulls", "valid", "sliced"])
def test_python_values_are_go_values(name, variant):
    array = arrays.CASES[name].array(variant)
    with golib.GoArray.from_arrow(array, full_validation=True) as go:
        assert go.values() == array.to_pylist()


@pytest.mark.parametrize("protocol", transfer.PROTOCOLS)
def test_rows_of_a_batch(protocol):
    batch = pa.record_batch({"n": [1, None, 3], "t": ["a", "b", None], "l": [[1], [], None]})
    with transfer.to_go(batch, protocol) as go:
        assert go.values() == batch.to_pylist()
        assert transfer.to_pyarrow(go, protocol).to_pylist() == batch.to_pylist()


def test_slices_are_the_same_on_both_sides():
    array = arrays.CASES["struct_nested"].array("nulls")
    with golib.GoArray.from_arrow(array) as go:
        for i in range(len(array) + 1):
            for j in range(i, len(array) + 1):
                with go.slice(i, j) as part:
                    arrow = pa.array(part)
                    arrow.validate(full=True)
                    assert arrow.equals(array.slice(i, j - i))
                    transfer.same_memory(arrow, array.slice(i, j - i))


def test_batch_slices_are_the_same_on_both_sides():
    array = arrays.CASES["list_utf8"].array("nulls")
    batch = pa.record_batch([array, arrays.CASES["bool"].array("nulls").slice(0, len(array))], names=["l", "b"])
    with golib.GoBatch.from_arrow(batch) as go:
        for i in range(len(array) + 1):
            for j in range(i, len(array) + 1):
                with go.slice(i, j) as part:
                    arrow = pa.record_batch(part)
                    arrow.validate(full=True)
                    assert arrow.equals(batch.slice(i, j - i))


def test_selected_columns_share_the_memory():
    batch = pa.record_batch({"n": [1, None, 3], "t": ["a", "b", None], "l": [[1], [], None]})
    with golib.GoBatch.from_arrow(batch) as go, go.select(2, 0, 2) as selected:
        arrow = pa.record_batch(selected)
        assert arrow.columns == [batch.column(i) for i in (2, 0, 2)]
        assert arrow.schema.names == ["l", "n", "l"]
        assert transfer.same_memory(arrow, pa.record_batch([batch.column(i) for i in (2, 0, 2)], names=arrow.schema.names)) > 0


@pytest.mark.parametrize("name", arrays.CASES)
def test_copy_to_host_is_equal_and_shares_nothing(name):
    array = arrays.CASES[name].array("sliced")
    with golib.GoArray.from_arrow(array) as go, go.copy_to_host() as copy:
        assert copy.difference(go) == ""
        back = pa.array(copy)
        back.validate(full=True)
        assert back.equals(array)
        assert not places(transfer.pyarrow_buffers(array)) & places(transfer.pyarrow_buffers(back))


def places(tree):
    """The addresses of all buffers that have bytes."""
    own = {b["address"] for b in tree["buffers"] if b["size"]}
    return own.union(*map(places, tree["children"]), places(tree["dictionary"]) if tree["dictionary"] else ())


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


def test_chunked_array_is_made_of_go_arrays():
    with golib.GoArray.make("utf8", "nulls") as first, golib.GoArray.make("utf8", "sliced") as second:
        chunked = pa.chunked_array([first, second])
        assert chunked.to_pylist() == first.values() + second.values()
