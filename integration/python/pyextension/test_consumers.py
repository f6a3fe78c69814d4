"""Results of functions in other libraries."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import duckdb
import nanoarrow
import numpy
import pandas
import polars
import pyarrow as pa
import pytest

import peers  # noqa: F401 - the fixture of all tests then counts DuckDB's memory as well

BATCH = pa.record_batch({"a": [1, 2, None], "b": ["x", None, "z"]})
ROWS = BATCH.to_pylist()


def from_duckdb(out):
    with duckdb.connect() as connection:
        return connection.sql("from out").to_arrow_table().to_pylist()


CONSUMERS = {
    "pyarrow.table": lambda out: pa.table(out).to_pylist(),
    "pyarrow.reader": lambda out: pa.RecordBatchReader.from_stream(out).read_all().to_pylist(),
    "polars": lambda out: polars.DataFrame(out).to_dicts(),
    "duckdb": from_duckdb,
    "pandas": lambda out: pandas.DataFrame.from_arrow(out).astype(object).replace({numpy.nan: None}).to_dict("records"),
    "nanoarrow": lambda out: list(nanoarrow.ArrayStream(out).read_all().to_pylist()),
    "to_pyarrow": lambda out: out.to_pyarrow().to_pylist(),
}


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_readers(ext, consumer):
    assert CONSUMERS[consumer](ext.echo_reader([BATCH, BATCH])) == ROWS * 2


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_lazy_readers_of_sources_in_python(ext, consumer):
    """nanoarrow and polars hold Python's lock while they read, and the source needs it."""
    assert CONSUMERS[consumer](ext.map_copies(b for b in [BATCH, BATCH])) == ROWS * 2


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("name", ["iterated", "iterated_in_context"])
def test_iterators_of_arrow_go(ext, name, consumer):
    """Go ends the process if they are made on one thread of Python and read on another one."""
    make, read = getattr(ext, name), CONSUMERS[consumer]
    rows = [{"n": i} for i in range(30)]
    with ThreadPoolExecutor(2) as threads:
        makers = [lambda: make(30), lambda: threads.submit(make, 30).result(), lambda: asyncio.run(make.aio(30))]
        for made in makers:
            assert read(made()) == rows
            assert threads.submit(read, made()).result() == rows
            started = made()
            assert next(started).to_pylist() == rows[:1]
            assert threads.submit(next, started).result().to_pylist() == rows[1:2]
            threads.submit(started.close).result()
            del started


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_batches(ext, consumer):
    with ext.echo_batch(BATCH) as batch:
        for _ in range(2):
            assert CONSUMERS[consumer](batch) == ROWS


@pytest.mark.parametrize("consumer", [c for c in CONSUMERS if c != "to_pyarrow"])
def test_second_use_of_a_reader(ext, consumer):
    out = ext.echo_reader(BATCH)
    assert CONSUMERS[consumer](out) == ROWS
    with pytest.raises(Exception, match="the stream was consumed by __arrow_c_stream__"):
        CONSUMERS[consumer](out)


def test_reader_that_was_asked_for_its_schema_is_not_consumed(ext):
    """DuckDB takes a stream for its schema, and another one for the rows."""
    out = ext.echo_reader([BATCH, BATCH])
    for _ in range(3):
        assert pa.RecordBatchReader.from_stream(out).schema == BATCH.schema
    assert pa.table(out).to_pylist() == ROWS * 2


def test_scan_of_polars(ext):
    if hasattr(polars, "scan_arrow_c_stream"):
        out = ext.map_copies(b for b in [BATCH, BATCH])
        assert polars.scan_arrow_c_stream(out).collect().to_dicts() == ROWS * 2


def test_arrays(ext):
    with ext.echo_array(pa.array([1, 2, 3])) as array:
        assert pa.array(array).to_pylist() == [1, 2, 3]
        assert polars.Series(array).to_list() == [1, 2, 3]
        assert polars.from_arrow(array).to_list() == [1, 2, 3]
        assert nanoarrow.Array(array).to_pylist() == [1, 2, 3]
        assert list(pandas.Series.from_arrow(array)) == [1, 2, 3]


def test_relation_that_stops_early(ext):
    out = ext.counters(1000, 1000)
    with duckdb.connect() as connection:
        assert len(connection.execute("from out limit 3").fetchall()) == 3


def test_memory_is_shared(ext):
    with ext.echo_batch(BATCH) as batch:
        for shared in (pa.table(batch)["a"].chunk(0), pa.record_batch(batch)["a"], pa.array(batch["a"])):
            assert shared.buffers()[1].address == BATCH["a"].buffers()[1].address


def test_results_are_arguments(ext):
    assert ext.count(ext.echo_reader(ext.echo_reader(BATCH))) == 3
    frame = polars.DataFrame(ext.echo_batch(BATCH))
    assert ext.count(frame) == 3


# DLPack.


def test_dlpack_of_numpy(ext):
    for values in (numpy.arange(5.0), numpy.arange(10, dtype="int16")[3:], numpy.arange(0)):
        with ext.echo_array(values) as array:
            assert array.to_pyarrow().to_pylist() == values.tolist()
            again = numpy.from_dlpack(array)
            assert again.tolist() == values.tolist()
            assert values.size == 0 or again.ctypes.data == values.ctypes.data


def test_read_only_memory_by_dlpack(ext):
    values = numpy.arange(3)
    values.flags.writeable = False
    with ext.echo_array(values) as array:
        assert array.to_pyarrow().to_pylist() == [0, 1, 2]


class Legacy:
    """A producer of before DLPack 1.0."""

    def __init__(self, values, **keywords):
        self._values, self._keywords = values, keywords

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()

    def __dlpack__(self, stream=None):
        return self._values.__dlpack__(stream=stream, **self._keywords)


def test_legacy_dlpack(ext):
    with ext.echo_array(Legacy(numpy.arange(3))) as array:
        assert array.to_pyarrow().to_pylist() == [0, 1, 2]
        assert numpy.from_dlpack(Legacy(array)).tolist() == [0, 1, 2]
        assert "dltensor_versioned" in repr(array.__dlpack__(max_version=(1, 0)))
        assert '"dltensor"' in repr(array.__dlpack__()), "a consumer that never takes it"


def test_keywords_of_dlpack(ext):
    with ext.echo_array(numpy.arange(3)) as array:
        assert array.__dlpack_device__() == (1, 0)
        array.__dlpack__(dl_device=(1, 0), copy=False)
        for other in (None, False):
            with pytest.raises(BufferError, match=r"call to_host\(\) or to_device\(\)"):
                array.__dlpack__(dl_device=(2, 0), copy=other)
        assert not hasattr(array, "__cuda_array_interface__")


def test_copies_by_dlpack(ext):
    """They are the consumer's own: it may write to them, and they outlive the array. The legacy form has no flags."""
    values = numpy.arange(3)
    with ext.echo_array(values) as array:
        copies = [numpy.from_dlpack(array, copy=True), numpy.from_dlpack(array, copy=True, device="cpu"), numpy.from_dlpack(Legacy(array, copy=True))]
        borrowed = numpy.from_dlpack(array, copy=False)
        assert [copied.flags.writeable for copied in (*copies, borrowed)] == [True, True, False, False]
    copies[0][0] = values[0] = 9
    assert [copied.tolist() for copied in (*copies, borrowed)] == [[9, 1, 2], [0, 1, 2], [0, 1, 2], [9, 1, 2]]


def test_dlpack_tensor_consumed_twice(ext):
    values = numpy.arange(3)
    capsule = values.__dlpack__(max_version=(1, 0))

    class Same:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_):
            return capsule

    with ext.echo_array(Same()):
        assert "used_dltensor_versioned" in repr(capsule)
    with pytest.raises(ValueError, match="echo_array: argument array: .*'used_dltensor_versioned'.*consumed before"):
        ext.echo_array(Same())


def test_dlpack_tensors_stay_the_producers_if_the_call_is_not_made(ext):
    values = numpy.arange(3)
    with pytest.raises(TypeError, match=r"argument values"):
        ext.read_two(BATCH, [values, object()])


def test_columns_without_a_tensor(ext):
    for column, text in ((pa.array(["x"]), "utf8|string"), (pa.array([1, None]), "null")):
        with ext.echo_array(column) as array, pytest.raises((BufferError, TypeError, ValueError), match=text):
            numpy.from_dlpack(array)

