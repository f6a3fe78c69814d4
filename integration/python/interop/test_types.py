"""Every type, in every variant, both ways, by arrays and by every kind of stream, without a copy."""

import contextlib
import ctypes

import pyarrow as pa
import pytest

import abi
import arrays
import asyncstreams
import cpp
import golib
import streams
import transfer
from gostream import GoStream, released

VARIANTS = golib.ext.cases()["variants"]
KINDS = {"array": golib.GoArray, "batch": golib.GoBatch}

each_type = pytest.mark.parametrize("name", arrays.CASES)


def go_items(kind, name):
    """A case in Go, in every variant, for a with statement."""
    return released(KINDS[kind].make(name, variant) for variant in VARIANTS)


def pyarrow_items(kind, name):
    """A case of PyArrow's, in every variant."""
    return [getattr(arrays.CASES[name], kind)(variant) for variant in VARIANTS]


# The ways from PyArrow to Go and back. Each moves items of one type; a stream moves them all.


class Arrays:
    """One array, or one batch, at a time."""

    def __init__(self, protocol):
        self._protocol = protocol

    def to_go(self, items):
        return released(transfer.to_go(item, self._protocol) for item in items)

    def to_pyarrow(self, items):
        return [transfer.to_pyarrow(item, self._protocol) for item in items]


class Chunks:
    """Device streams of arrays, which are the chunks of a pa.ChunkedArray."""

    @contextlib.contextmanager
    def to_go(self, items):
        with cpp.exported_chunks(pa.chunked_array(items, items[0].type)) as stream:
            with GoStream.take(ctypes.addressof(stream), of_arrays=True, full_validation=True) as go, released(go) as taken:
                yield taken

    def to_pyarrow(self, items, how="iterator"):
        with GoStream.of(items, how=how) as go, go.exported() as stream:
            return cpp.read_chunks(ctypes.addressof(stream)).chunks


class Streams:
    """Streams of batches."""

    def __init__(self, link):
        self._link = link

    @contextlib.contextmanager
    def to_go(self, items):
        with self._link.to_go(streams.reader(items), full_validation=True) as go, released(go) as taken:
            yield taken

    def to_pyarrow(self, items, how="iterator"):
        with GoStream.of(items, how=how) as go, self._link.from_go(go) as there:
            return list(there)

    def through_go(self, items):
        with self._link.to_go(streams.reader(items)) as go, self._link.from_go(go) as there:
            assert (there.device_type, there.schema.metadata) == (self._link.device_type, items[0].schema.metadata)
            return list(there)


class Asynchronous:
    """Asynchronous streams of batches."""

    def __init__(self, device_type=abi.CPU):
        self._device_type = device_type

    @contextlib.contextmanager
    def to_go(self, items):
        with asyncstreams.cpp_to_go(streams.reader(items), full_validation=True) as stream, released(stream) as taken:
            yield taken

    def to_pyarrow(self, items):
        with asyncstreams.go_to_cpp(items) as consumer:
            return [batch for batch, _ in consumer]

    def through_go(self, items):
        with cpp.Consumer() as back, asyncstreams.cpp_to_go(streams.reader(items), device_type=self._device_type) as stream:
            stream.forward(back.handler)
            assert back.device_type == self._device_type
            return [batch for batch, _ in back]


PLAIN, CPU, EXT_DEV = map(Streams, streams.LINKS)
WAYS = {
    **{(kind, protocol): Arrays(protocol) for kind in KINDS for protocol in transfer.PROTOCOLS},
    ("array", "device stream"): Chunks(),
    ("batch", "device stream"): CPU,
    ("batch", "plain stream"): PLAIN,
    ("batch", "asynchronous stream"): Asynchronous(),
}
each_way = pytest.mark.parametrize("kind, way", [pytest.param(k, way, id=f"{k} by {w}") for (k, w), way in WAYS.items()])


def assert_shared(left, right, name, variant):
    """Zero copy; and that there was something to copy."""
    shared = transfer.same_memory(left, right)
    if variant not in ("empty", "empty_part") and name not in ("null", "struct_empty"):
        assert shared > 0, variant


def assert_equal(got, want, variant):
    """Two items of PyArrow's, of which the first is valid."""
    got.validate(full=True)
    assert got.equals(want), variant
    if isinstance(want, pa.RecordBatch):
        assert got.schema.equals(want.schema, check_metadata=True), variant
    else:
        assert got.type == want.type, variant


def test_python_states_every_case_of_go():
    names = [case["name"] for case in golib.ext.cases()["cases"]]
    assert sorted(names) == sorted([*arrays.CASES, *arrays.WITHOUT_ARRAY_CLASS])


@each_type
@each_way
def test_go_arrives_in_pyarrow(kind, way, name):
    with go_items(kind, name) as items:
        for variant, item, arrow, want in zip(VARIANTS, items, way.to_pyarrow(items), pyarrow_items(kind, name), strict=True):
            assert_equal(arrow, want, variant)
            assert_shared(item, arrow, name, variant)


@each_type
@pytest.mark.parametrize("kind, way, how", [("array", Chunks(), "chunked"), ("batch", CPU, "table")], ids=["chunked", "table"])
def test_data_of_arrow_go_arrives_in_pyarrow(kind, way, how, name):
    """A table is read by its rows: arrow-go leaves out batches without rows."""
    kept = [variant for variant in VARIANTS if how == "chunked" or not variant.startswith("empty")]
    with go_items(kind, name) as items:
        arrived = way.to_pyarrow(items, how)
    assert len(arrived) == len(kept)
    for arrow, variant in zip(arrived, kept):
        assert_equal(arrow, getattr(arrays.CASES[name], kind)(variant), variant)


@each_type
@each_way
def test_pyarrow_arrives_in_go(kind, way, name):
    arrows = pyarrow_items(kind, name)
    with way.to_go(arrows) as taken, go_items(kind, name) as wanted:
        for variant, item, want, arrow in zip(VARIANTS, taken, wanted, arrows, strict=True):
            assert item.difference(want) == "", variant
            assert_shared(item, arrow, name, variant)


@each_type
def test_go_comes_back_from_pyarrow(name):
    """The same array; the ways of arrays and streams are those above."""
    way = Arrays("pointer")
    with go_items("array", name) as items, way.to_go(way.to_pyarrow(items)) as backs:
        for variant, item, back in zip(VARIANTS, items, backs, strict=True):
            assert back.difference(item) == "", variant
            assert_shared(item, back, name, variant)


@each_type
@pytest.mark.parametrize("protocol", ["pointer", "plain"])
def test_pyarrow_comes_back_from_go(protocol, name):
    """Go exports what it has imported, and not arrays of arrow-go."""
    arrows, way = pyarrow_items("array", name), Arrays(protocol)
    with way.to_go(arrows) as items:
        backs = way.to_pyarrow(items)
    for variant, arrow, back in zip(VARIANTS, arrows, backs, strict=True):
        assert_equal(back, arrow, variant)
        assert_shared(arrow, back, name, variant)


@each_type
@pytest.mark.parametrize("way", [PLAIN, CPU, Asynchronous()], ids=["plain", "device", "asynchronous"])
def test_streams_of_pyarrow_come_back_from_go(way, name):
    arrows = pyarrow_items("batch", name)
    for variant, arrow, back in zip(VARIANTS, arrows, way.through_go(arrows), strict=True):
        assert_equal(back, arrow, variant)
        assert_shared(arrow, back, name, variant)


# Arrow C++ reports the CPU for a batch without any buffer, even in a stream of another device; Go wants one device
# type throughout.
WITHOUT_BUFFERS = [*(("null", variant) for variant in VARIANTS), ("struct_empty", "valid"), ("struct_empty", "empty")]
each_device_stream = pytest.mark.parametrize("way", [EXT_DEV, Asynchronous(abi.EXT_DEV)], ids=["device", "asynchronous"])


@pytest.mark.parametrize("name", [name for name in arrays.CASES if name != "null"])
@each_device_stream
def test_streams_of_an_unknown_device_come_back_from_go(way, name):
    """Memory that Go has no backend for is handed on."""
    arrows = [arrays.CASES[name].batch(variant) for variant in VARIANTS if (name, variant) not in WITHOUT_BUFFERS]
    backs = way.through_go(arrows)
    assert len(backs) == len(arrows)
    for arrow, back in zip(arrows, backs):
        assert back.equals(arrow)


@pytest.mark.parametrize("name, variant", WITHOUT_BUFFERS)
@each_device_stream
def test_batches_without_buffers_are_of_another_device(way, name, variant):
    with pytest.raises(cpp.CppError, match="device_type = 1, want 12"):
        way.through_go([arrays.CASES[name].batch(variant)] * 2)


@each_type
def test_nothing_without_buffers_arrives_in_pyarrow(name):
    """Arrow C++ requires offsets even if the array is empty."""
    for protocol in transfer.PROTOCOLS:
        with golib.GoArray.make_bare(name) as go:
            assert_equal(transfer.to_pyarrow(go, protocol), arrays.CASES[name].array("empty"), protocol)


@pytest.mark.parametrize("name", ["utf8", "large_utf8", "list", "map", "binary_view"])
def test_nothing_with_null_buffers_passes_through_go(name):
    """Go accepts arrays that Arrow C++ rejects, and exports them so that Arrow C++ accepts them."""
    with golib.GoArray.make(name, "empty") as go, abi.structs() as s:
        go._export_to_c_device(*s.addresses)
        s.array.array.buffers = (ctypes.c_void_p * s.array.array.n_buffers)()
        with golib.GoArray._import_from_c_device(*s.addresses, full_validation=True) as taken:
            taken._export_to_c_device(*s.addresses)
            assert all(s.array.array.buffers[i] for i in range(1, s.array.array.n_buffers))
            arrow = pa.Array._import_from_c_device(*s.addresses)
            arrow.validate(full=True)
            assert len(arrow) == 0
            del arrow


OFFSETS, WORDS = pa.array([0, 3], pa.int32()), pa.array(["x", "y"])


def around(array):
    """The array, and arrays that have it as a child or as indices."""
    return [
        array,
        pa.StructArray.from_arrays([array], ["a"]),
        pa.ListArray.from_arrays(OFFSETS, array),
        pa.DictionaryArray.from_arrays(array, WORDS),
    ]


@pytest.mark.parametrize("nulls", [True, False], ids=["nulls", "no nulls"])
def test_only_a_bitmap_without_nulls_may_be_missing(nulls):
    """To transfer.same_memory, which the tests compare with."""
    values = pa.array([0, 1, 0], pa.int64()).buffers()[1]
    bits = b"\5" if nulls else b"\7"

    def array(bitmap):
        return pa.Array.from_buffers(pa.int64(), 3, [bitmap, values])

    with_bitmap, copied, missing = (around(array(b)) for b in (pa.py_buffer(bits), pa.py_buffer(b"" + bits + b"\0"), None))
    for one, copy, none in zip(with_bitmap, copied, missing):
        assert transfer.same_memory(one, one) > 1
        different = [(one, copy), (copy, one), *([(one, none), (none, one)] if nulls else [])]
        for left, right in different:
            with pytest.raises(transfer.NotShared, match=r"buffers\[0\]"):
                transfer.same_memory(left, right)
        if not nulls:
            assert transfer.same_memory(one, none) > 0 and transfer.same_memory(none, one) > 0
