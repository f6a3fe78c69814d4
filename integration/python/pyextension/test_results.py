"""What people do with results first: values, comparisons, and the constructors of NumPy, pandas and polars."""

import datetime
import os

import numpy
import pandas
import polars
import pyarrow as pa
import pytest

import arrowdevice
import extension
from processes import FINDS, ended

NUMBERS, TEXTS = pa.array([1, 2, None]), pa.array(["x", None, "<z>"])
BATCH = pa.record_batch({"a": NUMBERS, "b": TEXTS})
ROWS = BATCH.to_pylist()


@pytest.fixture
def batch(ext):
    with ext.echo_batch(BATCH) as made:
        yield made


# NumPy.

DAYS = pa.array([datetime.date(2020, 1, 2), datetime.date(1969, 12, 31)])
COLUMNS = {
    "int8": pa.array([-1, 2], "int8"),
    "uint64": pa.array([1, (1 << 64) - 1], "uint64"),
    "float16": pa.array(numpy.arange(2, dtype="float16")),
    "double": pa.array([1.5, -0.0]),
    "slice": pa.array([1, 2, 3, 4])[1:3],
    "empty": pa.array([], "int32"),
    "nulls": pa.array([1, None]),
    "nan": pa.array([float("nan"), None]),
    "bool": pa.array([True, False]),
    "bool with null": pa.array([True, None]),
    "text": TEXTS,
    "date": DAYS,
    "timestamp": pa.array([1, None], pa.timestamp("ms", "UTC")),
    "duration": pa.array([1, 2], pa.duration("us")),
    "dictionary": pa.array(["x", "y", "x"]).dictionary_encode(),
    "list": pa.array([[1], None, [2, 3]]),
    "fixed list": pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, 4]), 2),
    "struct": pa.array([{"a": 1}, None]),
    "null": pa.nulls(2),
}


def same(one, other):
    assert (one.dtype, one.shape, repr(one.tolist())) == (other.dtype, other.shape, repr(other.tolist()))


@pytest.mark.parametrize("name", COLUMNS)
def test_arrays_of_numpy(ext, name):
    """They are those of PyArrow."""
    column = COLUMNS[name]
    with ext.echo_array(column) as array:
        same(numpy.asarray(array), numpy.asarray(column))
        same(numpy.array(array), numpy.array(column))


def test_numbers_are_not_copied(ext):
    values = numpy.arange(5.0)
    with ext.echo_array(values) as array:
        seen = numpy.asarray(array[1:])
        assert numpy.array(array, copy=False).ctypes.data == values.ctypes.data
        assert numpy.asarray(array, "float64").ctypes.data == values.ctypes.data
        copied = numpy.array(array, copy=True)
    values[2] = 7
    assert (seen.tolist(), seen.flags.writeable) == ([1, 7, 3, 4], False), "the view outlives the array"
    assert (copied.tolist(), copied.flags.writeable) == ([0, 1, 2, 3, 4], True)


def test_dtypes_and_copies_of_numpy(ext, batch):
    with ext.echo_array(pa.array([1, 2])) as array:
        same(numpy.asarray(array, "float32"), numpy.array([1, 2], "float32"))
        with pytest.raises(ValueError, match="copy"):
            numpy.array(array, dtype="float32", copy=False)
    with batch["b"] as texts, pytest.raises(ValueError, match="copy"):
        numpy.array(texts, copy=False)
    with pytest.raises(ValueError):
        numpy.asarray(batch["b"], "int64")


def test_batches_and_readers_of_numpy(ext, batch):
    numbers = pa.record_batch({"a": [1, 2], "b": [0.5, 1.5]})
    with ext.echo_batch(numbers) as two:
        same(numpy.asarray(two), numpy.array([[1, 0.5], [2, 1.5]]))
    same(numpy.asarray(batch), numpy.asarray(BATCH))
    same(numpy.asarray(ext.counters(2, 2)), numpy.arange(4).reshape(4, 1))


# pandas and polars.


def test_series_of_pandas(ext, batch):
    for column in (NUMBERS, TEXTS, DAYS):
        with ext.echo_array(column) as array:
            pandas.testing.assert_series_equal(pandas.Series(array), pandas.Series(numpy.asarray(column)))
            pandas.testing.assert_series_equal(array.to_pandas(), column.to_pandas())
    kept = batch["a"].to_pandas(types_mapper=pandas.ArrowDtype)
    assert (str(kept.dtype), kept[:2].tolist(), kept.isna().tolist()) == ("int64[pyarrow]", [1, 2], [False, False, True])
    assert pandas.Index(batch["b"])[0] == "x"


def test_frames_of_pandas(ext, batch):
    """Columns have names from a dict; pandas asks a batch for an array of NumPy, which has none."""
    named = pandas.DataFrame(dict(zip(batch.names, batch)))
    assert (list(named.columns), named["a"].dtype, named["b"].tolist()[0]) == (["a", "b"], "float64", "x")
    pandas.testing.assert_frame_equal(batch.to_pandas(), BATCH.to_pandas())
    pandas.testing.assert_frame_equal(ext.counters(2, 2).to_pandas(), pandas.DataFrame({"n": range(4)}))
    for made in (batch, ext.echo_reader(BATCH)):
        numbered = pandas.DataFrame(made)
        assert (list(numbered.columns), numbered[0].tolist()[:2], numbered[1].tolist()[0]) == ([0, 1], [1, 2], "x")
    assert list(pandas.DataFrame(batch, columns=batch.names).columns) == ["a", "b"]


def test_polars(ext, batch):
    for frame in (batch.to_polars(), polars.DataFrame(batch), ext.echo_reader(BATCH).to_polars()):
        assert type(frame) is polars.DataFrame and frame.to_dicts() == ROWS
    for series in (batch["b"].to_polars(), polars.Series(batch["b"]), polars.Series("n", batch["b"]), polars.from_arrow(batch["b"])):
        assert type(series) is polars.Series and series.to_list() == TEXTS.to_pylist()
    assert polars.from_arrow(batch).to_list() == ROWS, "a Series of struct, as of each object that is not PyArrow's"
    assert polars.DataFrame({"n": batch["a"]})["n"].to_list() == [1, 2, None]


# Values.


def test_values(ext, batch):
    assert batch.to_pylist() == ext.echo_reader(BATCH).to_pylist() == ROWS
    column = batch["a"]
    assert column.to_pylist() == list(column) == [1, 2, None]
    assert list(reversed(column)) == [None, 2, 1]
    assert [column[i] for i in (0, 1, 2, -1, -3, numpy.int8(1))] == [1, 2, None, None, 1, 2]
    assert (2 in column, None in column, 3 in column, "x" in batch["b"]) == (True, True, False, True)
    assert type(column[0]) is int and ext.echo_array(DAYS)[0] == datetime.date(2020, 1, 2)
    for index in (3, -4, 1 << 70):
        with pytest.raises(IndexError, match="there is no row .*: the array has 3"):
            column[index]
    for index in ("a", 1.0, None):
        with pytest.raises(TypeError, match="as an integer"):
            column[index]


def test_columns_of_a_batch(batch):
    assert ("a" in batch, "c" in batch, NUMBERS in batch, DAYS in batch) == (True, False, True, False)
    assert len(batch) == 3 and len(list(batch)) == 2, "so it is no sequence: its length is that of its columns"
    assert not isinstance(batch, (list, dict)) and [c == o for c, o in zip(batch, BATCH.columns)] == [True, True]


# Comparisons.


def test_equality(ext, batch):
    for made, other, different in (
        (batch, BATCH, BATCH[1:]),
        (batch["a"], NUMBERS, NUMBERS.cast("int32")),
        (batch["b"], TEXTS, pa.array(["x", "", "<z>"])),
        (batch.schema, BATCH.schema, BATCH.schema.remove(0)),
    ):
        echo = getattr(ext, "echo_" + type(made).__name__.lower().removeprefix("record"))
        again = echo(other)
        assert made == again and made == other and not made != again and not made != other
        assert made != different and made != echo(different)
        for stranger in (None, 5, "a", object(), [], batch if made is not batch else batch["a"]):
            assert made != stranger and not made == stranger
        with pytest.raises(TypeError, match="unhashable"):
            hash(made)
    assert NUMBERS == batch["a"] and BATCH.schema == batch.schema, "with PyArrow's object on the left"
    with ext.echo_array(pa.array([float("nan")])) as nan:
        assert nan != nan, "as in PyArrow"
    assert (batch["a"] == numpy.array([1.0, 2.0, 3.0])).tolist() == [True, True, False], "which NumPy compares"


def test_readers_are_not_compared(ext):
    """A comparison would read them."""
    one, other = ext.counters(1, 2), ext.counters(1, 2)
    assert one != other and one == one and len({one, other}) == 2
    assert next(ext.counters(1, 1)) != one
    assert one.to_pylist() == other.to_pylist() == [{"n": 0}, {"n": 1}]


def test_closed_objects_are_not_compared(ext, batch):
    closed = ext.echo_batch(BATCH)
    closed.close()
    for one, other in ((closed, batch), (batch, closed), (closed, closed)):
        with pytest.raises(ValueError, match="the RecordBatch is closed"):
            one.__eq__(other)


# Notebooks.


def test_html(ext, batch):
    shown = batch._repr_html_()
    assert shown.startswith("<table><caption>&lt;arrowdevice.RecordBatch: 3 rows of a, b on cpu&gt;</caption>")
    assert "<th>a<br><small>int64</small></th><th>b<br><small>string</small></th>" in shown
    assert "<tr><td>1</td><td>&#x27;x&#x27;</td></tr>" in shown and "&lt;z&gt;" in shown and "<z>" not in shown
    assert "<td>2</td>" in batch["a"]._repr_html_()
    long = pa.record_batch({f"c{i}": pa.array(["y" * 1000] * 1000) for i in range(100)})
    with ext.echo_batch(long) as made:
        assert len(made._repr_html_()) < 20_000
    batch.close()
    assert batch._repr_html_() is None
    assert not hasattr(ext.counters(1, 1), "_repr_html_"), "it would read the reader"


def test_other_rows_are_not_shown(ext):
    with ext.echo_array(pa.array(range(1000))) as made:
        assert made._repr_html_().count("<td>") == 10


# Without the libraries, and where the CPU cannot read.


def test_libraries_that_are_not_installed(tmp_path):
    status, out, err = ended(
        f"""
        for name in ("pyarrow", "pandas", "polars"):
            sys.modules[name] = None
        import arrowdevice, numpy
        ext = arrowdevice.load({extension.PATH!r})
        array = ext.echo_array(numpy.arange(3.0))
        assert numpy.asarray(array).tolist() == [0, 1, 2] and numpy.asarray(array[1:], "int8").tolist() == [1, 2]
        assert array._repr_html_() is None and (array == 5) is False
        batch = next(ext.counters(2, 1))
        for use, name in (
            (array.to_pyarrow, "pyarrow"), (array.to_pylist, "pyarrow"), (array.to_pandas, "pyarrow"), (lambda: array[0], "pyarrow"),
            (lambda: array == array, "pyarrow"), (array.to_polars, "polars"), (batch.to_polars, "polars"), (batch.schema.to_pyarrow, "pyarrow"),
            (lambda: numpy.asarray(batch), "pyarrow"),
        ):
            try:
                use()
            except ImportError as error:
                assert error.name == name and f"this needs {{name}}, which cannot be imported" in str(error), error
            else:
                raise AssertionError(name)
        """,
        tmp_path,
        head=FINDS,
    )
    assert (status, err) == (0, "")


def test_import_loads_no_other_library(tmp_path):
    program = f"import arrowdevice\narrowdevice.load({extension.PATH!r})\nprint({{'numpy', 'pyarrow', 'pandas', 'html'}} & set(sys.modules))"
    assert ended(program, tmp_path, head=FINDS) == (0, "set()\n", "")


ON_GPU = """
import numpy, pandas, polars
host = ext.echo_batch(BATCH)
gpu, reader = host.to_device("cuda:0"), ext.echo_reader(host).to_device("cuda")
column = gpu["a"]
for use in (
    *(f for made in (gpu, column, reader) for f in (made.to_pylist, made.to_pandas, made.to_polars)),
    *(lambda m=m: numpy.asarray(m) for m in (gpu, column, reader)), lambda: pandas.Series(column), lambda: pandas.Series(gpu),
    lambda: pandas.DataFrame(gpu), lambda: pandas.DataFrame(reader), lambda: column[0], lambda: list(column), lambda: 1 in column,
    lambda: gpu == host, lambda: host == gpu, lambda: column == BATCH["a"], lambda: BATCH["a"] == column, lambda: gpu == gpu,
):
    try:
        result = use()
    except TypeError as error:
        assert "call to_host() first" in str(error), error
    else:
        raise AssertionError(repr(result))
assert (gpu == None, column == 5, "a" in gpu, gpu._repr_html_(), column._repr_html_()) == (False, False, True, None, None)
assert gpu.to_host() == host == BATCH and gpu.schema == host.schema
assert numpy.asarray(column.to_host()).tolist() == list(column.to_host()) == [1, 2]
for kind in ("cuda_host:0", "cuda_managed:0"):
    near = host.to_device(kind)
    assert near == host and numpy.asarray(near["a"]).tolist() == list(near["a"]) == [1, 2] and near.to_polars().to_dicts() == BATCH.to_pylist()
print("done")
"""


def test_memory_of_a_gpu_is_refused(tmp_path):
    driver = os.environ.get("DEVICE_DRIVER")
    if not driver:
        pytest.skip("DEVICE_DRIVER names no simulated driver: run.sh builds it")
    status, out, err = ended(ON_GPU, tmp_path, CDEVICE_CUDA_DRIVER=driver)
    assert (status, out) == (0, "done\n"), err


def test_classes_keep_their_names(batch):
    """Those of the package have all methods, wherever memory is."""
    for base in (arrowdevice.RecordBatch, arrowdevice.RecordReader, arrowdevice.Array):
        assert all(hasattr(base, name) for name in ("to_pylist", "to_pandas", "to_polars", "to_pyarrow", "__array__"))
        assert not hasattr(base, "__arrow_c_stream__") and not hasattr(base, "__arrow_c_array__")
