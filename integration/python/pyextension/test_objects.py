"""Record batches, readers, arrays and schemas that Go returned."""

import pickle
import time

import pyarrow as pa
import pytest

import arrowdevice

BATCH = pa.record_batch({"a": [1, 2, None], "b": ["x", None, "z"]})


@pytest.fixture
def batch(ext):
    with ext.echo_batch(BATCH) as made:
        yield made


def test_record_batch(batch):
    assert (batch.num_rows, batch.num_columns, len(batch), batch.names, batch.device) == (3, 2, 3, ["a", "b"], "cpu")
    assert isinstance(batch, arrowdevice.RecordBatch)
    assert repr(batch) == "<arrowdevice.RecordBatch: 3 rows of a, b on cpu>"
    assert [c.to_pyarrow() for c in batch.columns] == [c.to_pyarrow() for c in batch] == BATCH.columns
    assert batch["b"].to_pyarrow() == batch[1].to_pyarrow() == batch[-1].to_pyarrow() == batch.column("b").to_pyarrow() == BATCH["b"]
    assert batch.to_pyarrow() == BATCH
    assert batch.to_host().to_pyarrow() == BATCH
    assert batch.synchronize() is None


def test_slices(batch):
    for cut in (slice(1, None), slice(None, 2), slice(1, 2), slice(-2, -1), slice(2, 1), slice(0, 100), slice(None), slice(5, 9)):
        assert batch[cut].to_pyarrow().to_pylist() == BATCH.to_pylist()[cut]
        assert batch["a"][cut].to_pyarrow().to_pylist() == BATCH["a"].to_pylist()[cut]
    assert batch.slice(1).to_pyarrow().to_pylist() == BATCH.to_pylist()[1:]
    assert batch.slice(0, 1).to_pyarrow().to_pylist() == BATCH.to_pylist()[:1]
    with pytest.raises(ValueError, match="a slice of rows has no step"):
        batch[::2]


def test_columns_that_are_not_there(ext, batch):
    with pytest.raises(KeyError, match="0 columns have the name 'c'; there are \\['a', 'b'\\]"):
        batch["c"]
    for index, text in ((2, "2"), (-3, "-3"), (1 << 70, "of 71 bits")):
        with pytest.raises(IndexError, match=f"there is no column {text}: the batch has 2"):
            batch[index]
    with pytest.raises(OverflowError, match="does not fit into 64 bits"):
        batch["a"].__dlpack__(stream=1 << 70)
    twice = pa.record_batch([pa.array([1]), pa.array([2])], names=["a", "a"])
    with ext.echo_batch(twice) as double, pytest.raises(KeyError, match="2 columns have the name 'a'"):
        double["a"]


def test_table_of_a_reader_is_made_batch_by_batch(ext, monkeypatch):
    """So that signal handlers run between two. It reads the reader once, as other consumers do."""
    reader = ext.counters(2, 3)
    asked = []
    ask = ext._library.ask
    monkeypatch.setattr(ext._library, "ask", lambda name, *rest: asked.append(name) or ask(name, *rest))
    assert reader.to_pyarrow()["n"].to_pylist() == list(range(6))
    assert asked.count(".next") == 4
    monkeypatch.undo()
    with pytest.raises(ValueError, match="a stream is read once"):
        reader.to_pyarrow()
    assert ext.counters(2, 0).to_pyarrow() == pa.table({"n": pa.array([], "int64")}, schema=ext.counters(1, 0).schema.to_pyarrow())


def test_arrays(batch):
    with batch["a"] as array:
        assert (len(array), array.type, array.device) == (3, "int64", "cpu")
        assert repr(array) == "<arrowdevice.Array: 3 int64 on cpu>"
        assert array.to_host().to_pyarrow() == BATCH["a"]


def test_schemas(ext, batch):
    with batch.schema as schema:
        assert isinstance(schema, arrowdevice.Schema)
        assert schema.names == ["a", "b"]
        assert repr(schema) == "<arrowdevice.Schema: a, b>"
        assert "a: type=int64, nullable" in str(schema)
        assert schema.to_pyarrow() == pa.schema(schema) == pa.schema(batch) == BATCH.schema
    with ext.echo_schema(BATCH.schema) as schema:
        assert schema.to_pyarrow() == BATCH.schema
        assert repr(schema) == "<arrowdevice.Schema: a, b>"


def test_readers(ext):
    with ext.counters(2, 3) as reader:
        assert repr(reader) == "<arrowdevice.RecordReader: n on cpu>"
        assert (reader.names, reader.schema.names, reader.device) == (["n"], ["n"], "cpu")
        assert [b["n"].to_pyarrow().to_pylist() for b in reader] == [[0, 1], [2, 3], [4, 5]]
        assert list(reader) == []
    assert [len(b) for b in ext.counters(2, 3).read_all()] == [2, 2, 2]
    assert ext.counters(2, 3).to_pyarrow()["n"].to_pylist() == list(range(6))
    assert ext.counters(2, 3).to_host().to_pyarrow()["n"].to_pylist() == list(range(6))


def test_consumers_of_a_reader_get_the_rest(ext):
    reader = ext.counters(2, 3)
    assert next(reader)["n"].to_pyarrow().to_pylist() == [0, 1]
    assert pa.table(reader)["n"].to_pylist() == [2, 3, 4, 5]


@pytest.mark.parametrize(
    "use",
    [next, pa.table, lambda r: r.to_host(), lambda r: r.read_all(), lambda r: r.__arrow_c_device_stream__(), lambda r: r.to_pyarrow()],
    ids=["next", "table", "to_host", "read_all", "device stream", "to_pyarrow"],
)
def test_a_consumed_reader_says_so(ext, use):
    reader = ext.counters(2, 3)
    pa.table(reader)
    with pytest.raises(ValueError, match="the stream was consumed by __arrow_c_stream__"):
        use(reader)
    assert reader.names == ["n"]


def test_closed_objects(ext):
    for made in (ext.echo_batch(BATCH), ext.counters(1, 1), ext.echo_array(BATCH["a"]), ext.echo_schema(BATCH.schema)):
        name = type(made).__name__
        made.close()
        made.close()
        assert made.closed
        for use in (lambda: made.__arrow_c_schema__(), lambda: str(made.names), lambda: made.__enter__().to_host(), lambda: made.to_pyarrow()):
            with pytest.raises((ValueError, AttributeError), match=f"the {name} is closed|has no attribute"):
                use()
        if name != "Schema":
            assert repr(made) == f"<arrowdevice.{name}: closed>"


def test_parts_outlive_the_whole(ext):
    batch = ext.echo_batch(BATCH)
    column, schema, part = batch["a"], batch.schema, batch[1:]
    batch.close()
    assert column.to_pyarrow() == BATCH["a"]
    assert part.to_pyarrow() == BATCH[1:]
    with pytest.raises(ValueError, match="the RecordBatch is closed"):
        str(schema)


def test_protocols(batch, ext):
    with batch["a"] as array, ext.counters(1, 1) as reader:
        methods = ["schema", "device_array", "array", "device_stream", "stream"]
        offered = [[hasattr(made, f"__arrow_c_{m}__") for m in methods] for made in (batch, array, reader, batch.schema)]
        assert offered == [
            [True, True, True, False, True],
            [True, True, True, False, False],
            [True, False, False, True, True],
            [True, False, False, False, False],
        ]


def test_capsules_that_are_never_taken(ext, batch):
    with batch["a"] as array:
        for made in (batch, array, ext.counters(1, 1), ext.counters(1, 1)):
            for method in ("device_array", "array", "schema", "device_stream", "stream"):
                if hasattr(made, f"__arrow_c_{method}__"):
                    try:
                        getattr(made, f"__arrow_c_{method}__")()
                    except ValueError as consumed:
                        assert "consumed" in str(consumed)


@pytest.mark.parametrize("form", ["stream", "device_stream"])
def test_context_ends_with_the_last_stream(ext, form):
    ended = ext.ended_contexts()
    made = ext.watch_context([BATCH])
    stream = getattr(made, f"__arrow_c_{form}__")()
    made.close()
    time.sleep(0.01)
    assert ext.ended_contexts() == ended
    del stream
    for _ in range(10_000):
        if ext.ended_contexts() == ended + 1:
            break
        time.sleep(0.001)
    assert ext.ended_contexts() == ended + 1


def test_keywords_of_later_versions(ext, batch):
    with batch["a"] as array, ext.counters(1, 1) as reader:
        for made in (batch, array, reader):
            for method in ("device_array", "array", "device_stream", "stream"):
                export = getattr(made, f"__arrow_c_{method}__", None)
                if export is not None:
                    with pytest.raises(NotImplementedError, match="unsupported keyword arguments: other, some"):
                        export(some=1, other=2, absent=None)
        batch.__arrow_c_device_array__(absent=None)


def test_requested_schemas(ext, batch):
    same, other = BATCH.schema, pa.schema([("a", pa.int64())])
    for method in (batch.__arrow_c_array__, batch.__arrow_c_device_array__, batch.__arrow_c_stream__):
        capsule = same.__arrow_c_schema__()
        assert method(requested_schema=capsule) is not None
        assert pa.Schema._import_from_c_capsule(capsule) == same, "it is not consumed"
        with pytest.raises(ValueError, match="requested_schema has 1 field, not 2"):
            method(requested_schema=other.__arrow_c_schema__())
    with ext.counters(1, 1) as reader:
        with pytest.raises(ValueError, match="requested_schema has 2 fields, not 1"):
            reader.__arrow_c_stream__(requested_schema=same.__arrow_c_schema__())
        assert len(reader.read_all()) == 1, "it was not consumed"
    with pytest.raises(TypeError, match="requested_schema"):
        batch.__arrow_c_array__(requested_schema=5)
    wider = pa.schema([("a", pa.float64()), ("b", pa.large_utf8())])
    assert pa.table(batch, schema=wider).schema == wider


def test_classes_are_those_of_the_package(ext, batch):
    """Also those of objects in host memory, which have more protocols."""
    classes = [type(made) for made in (batch, batch["a"], ext.echo_schema(BATCH.schema), ext.counters(1, 1))]
    classes += [arrowdevice.Error, arrowdevice.Panic, arrowdevice.Cancelled]
    assert {c.__module__ for c in classes} == {"arrowdevice"}


def test_objects_are_not_pickled(batch):
    with pytest.raises(TypeError, match="a RecordBatch cannot be pickled: pass it on as Arrow IPC"):
        pickle.dumps(batch)


def test_libraries_are_pickled_by_path(ext):
    assert pickle.loads(pickle.dumps(ext)) is ext
