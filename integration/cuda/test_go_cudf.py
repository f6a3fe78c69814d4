"""Batches and arrays of Go in the hands of pylibcudf: of one that asks for the protocols as pylibcudf does, since libcudf does not
run on the simulated driver."""

import threading

import extension
import fakecudf as plc
import nanoarrow
import pytest
from extension import ext

import abi
import driver
import go

pytestmark = pytest.mark.usefixtures("golang")


def batch(columns, values, length=3):
    """A batch of Go's on the GPU."""
    schema = nanoarrow.struct(columns)
    children = [nanoarrow.c_array(v, t) for v, t in zip(values, columns.values())]
    return ext.echo_batch(nanoarrow.c_array_from_buffers(schema, length, [None], children=children)).to_device("cuda:0")


def numbers_and_text():
    return batch({"n": nanoarrow.int64(), "t": nanoarrow.string()}, [[1, None, 3], ["a", "bb", None]])


def read(held, schema):
    """The rows of what pylibcudf holds, by way of Go."""
    back = ext.echo_batch(held.shared(schema))
    return nanoarrow.Array(back.to_host()).to_pylist()


class Asked:
    """An object that notes what it is asked for."""

    def __init__(self, of):
        self._of, self.asked = of, []

    def __getattr__(self, name):
        self.asked.append(name)
        return getattr(self._of, name)


@pytest.mark.parametrize("kind", [plc.Table, plc.Column], ids=["Table", "Column"])
def test_pylibcudf_takes_the_device_path(kind):
    """It asks for device arrays first, and is given no host protocol that it would take instead."""
    made = numbers_and_text()
    thing = Asked((made if kind is plc.Table else made["n"]).for_cudf())
    held = kind.from_arrow(thing)
    assert set(thing.asked) == {"__arrow_c_device_array__"}
    assert (held.array.device_type, held.array.device_id) == (abi.CUDA, 0)
    held.release()
    reader = ext.echo_reader([made])
    for protocol in ("__arrow_c_array__", "__arrow_c_stream__"):
        assert not hasattr(made, protocol) and not hasattr(made["n"], protocol) and not hasattr(reader, protocol)
    with pytest.raises(NotImplementedError, match="device streams"):
        kind.from_arrow(reader)
    reader.close()


def test_streams_are_passed_on_batch_by_batch():
    made = numbers_and_text()
    reader = ext.echo_reader([made, made[:1], made])
    schema = reader.schema
    held = [plc.Table.from_arrow(b) for b in reader.for_cudf()]
    del reader
    assert [h.array.array.length for h in held] == [3, 1, 3]
    rows = [{"n": 1, "t": "a"}, {"n": None, "t": "bb"}, {"n": 3, "t": None}]
    assert [read(h, made.schema) for h in held] == [rows, rows[:1], rows]
    schema.close()


@pytest.mark.parametrize("column", [False, True], ids=["batch", "column"])
def test_time_zones_are_a_choice(column):
    zoned = nanoarrow.timestamp("us", timezone="Europe/Berlin")
    whole = batch({"when": zoned}, [[1, 2, 3]])
    made = whole["when"] if column else whole
    name = "array" if column else r"column\[0\]"
    with pytest.raises(NotImplementedError, match=rf"for cuDF: {name}.type = timestamp\[us, tz=Europe/Berlin\]"):
        made.for_cudf()
    with pytest.raises(NotImplementedError):
        list(ext.echo_reader([whole]).for_cudf())
    held = (plc.Column if column else plc.Table).from_arrow(made.for_cudf(lose_time_zones=True))
    held.release()
    assert len(list(ext.echo_reader([whole]).for_cudf(lose_time_zones=True))) == 1
    plain = batch({"when": nanoarrow.timestamp("us")}, [[1, 2, 3]])
    back = (plain["when"] if column else plain).from_cudf(zoned if column else whole.schema)
    assert "Europe/Berlin" in (back.type if column else str(back.schema))


def test_memory_of_the_cpu_is_refused():
    host = ext.echo_array(nanoarrow.c_array([1, 2, 3], nanoarrow.int64()))
    with pytest.raises(NotImplementedError, match="for cuDF: device_type = cpu, want memory of CUDA"):
        host.for_cudf()
    with pytest.raises(NotImplementedError, match="from cuDF: device_type = cpu, want memory of CUDA"):
        host.from_cudf(nanoarrow.int64())
    pinned = host.to_device("cuda_host:0").for_cudf()
    held = plc.Column.from_arrow(pinned)
    assert held.array.device_type == abi.CUDA_HOST
    held.release()


def test_from_cudf_names_what_does_not_fit():
    made = numbers_and_text()
    with pytest.raises(TypeError, match=r"from cuDF: column\[1\].type = utf8, want int64"):
        made.from_cudf(nanoarrow.struct({"n": nanoarrow.int64(), "t": nanoarrow.int64()}))
    with pytest.raises(TypeError, match="from cuDF: columns = 2, want 1"):
        made.from_cudf(nanoarrow.struct({"n": nanoarrow.int64()}))
    with pytest.raises(TypeError, match="a schema is wanted, which has __arrow_c_schema__, not str"):
        made.from_cudf("int64")
    with pytest.raises(TypeError, match="a schema is wanted"):
        made["n"].from_cudf(None)
    renamed = made.from_cudf(nanoarrow.struct({"a": nanoarrow.int64(), "b": nanoarrow.string()}))
    assert renamed.names == ["a", "b"]


def test_the_event_is_behind_the_copy(stream):
    """from_arrow does not wait: libcudf waits for the event of the struct, on its stream."""
    host = ext.echo_array(nanoarrow.c_array([1, 2, 3], nanoarrow.int64()))
    with driver.gate(stream) as gate:
        made = ext.copy_to(host, abi.CUDA, 0, stream)
        held = plc.Column.from_arrow(made.for_cudf())
        assert held.array.sync_event
        assert not ext.ready(made)
        with go.opening(gate):
            back = ext.echo_array(held.shared(nanoarrow.int64()))
            assert nanoarrow.Array(back.to_host()).to_pylist() == [1, 2, 3]


def test_memory_ends_with_a_release_on_another_thread():
    """libcudf releases what it holds on any thread, and without Python's lock; the Python objects may be gone."""
    held = [plc.Table.from_arrow(numbers_and_text().for_cudf()) for _ in range(3)]
    go.settle()
    assert extension.alive()["exported_arrays"] == 3
    threads = [threading.Thread(target=h.release) for h in held]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    go.settle()
    assert extension.settled() == {}
