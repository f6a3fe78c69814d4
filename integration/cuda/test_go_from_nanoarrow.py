"""Arrays that nanoarrow copied to the device: Go takes them with their events, reads
them after those, and releases them once, after all work on them.

nanoarrow frees such memory at once in its release callback, without waiting for
anything: a consumer that releases too early shows as a violation of the driver's rules
at the end of the test.
"""

import golib
import nanoarrow as na
import numpy as np
import pytest
from nanoarrow.c_schema import c_schema
from nanoarrow.device import c_device_array
from numba import cuda

import abi
import capsules
import driver
import go
import nano
from helpers import on_threads, pinned

pytestmark = pytest.mark.usefixtures("golang")


def arrives(name, stream):
    for variant in go.VARIANTS:
        handed = go.copied_by_nanoarrow(name, variant, stream)
        with golib.GoArray.from_arrow(handed) as taken:
            assert taken.describe()["device"] == "cuda:0"
            assert go.device_difference(taken, name, variant) == "", variant
            assert handed.releases == 0
            taken.wait()  # where there is nothing to read: see test_nanoarrow_waits.py
        go.settle()
        assert handed.releases == 1


@pytest.mark.parametrize("name", go.SOME_PLAIN + go.SOME_STRINGS)
def test_arrives(name, stream):
    arrives(name, stream)


@pytest.mark.machines("delayed")
@pytest.mark.parametrize("name", go.LOOKED_INTO)
def test_every_type_arrives(name, stream):
    arrives(name, stream)


@pytest.mark.parametrize("name", ["int64", "bool", "utf8", "struct_nested", "list_dictionary"])
def test_record_batch_arrives(name, stream):
    for variant in go.VARIANTS:
        array = go.copied_by_nanoarrow(name, variant, stream, kind=golib.GoBatch)
        with golib.GoBatch.from_arrow(array) as taken:
            assert go.device_difference(taken, name, variant) == "", variant
            taken.wait()


def words():
    """A dictionary array, which nanoarrow cannot make of a list."""
    indices = np.array([2, 0, 1, 2, 1], np.int8)
    offsets, data = np.array([0, 3, 3, 8], np.int32), np.frombuffer(b"redgreen", np.uint8)
    dictionary = capsules.Tree(3, None, offsets.ctypes.data, data.ctypes.data, keep=(offsets, data))
    tree = capsules.Tree(5, None, indices.ctypes.data, dictionary=dictionary, keep=indices)
    return capsules.Produced(c_schema(na.dictionary(na.int8(), na.string())), capsules.export(tree))


def lists():
    child = na.c_array(["a", None, "ccc", ""], na.string())
    return na.c_array_from_buffers(na.large_list(na.string()), 3, [None, na.c_buffer([0, 1, 1, 4], na.int64())], children=[child])


def records():
    columns = [na.c_array([1, None, 3], na.int32()), na.c_array(["x", "yy", None], na.string())]
    type = na.struct({"a": na.int32(), "b": na.string()})
    return na.c_array_from_buffers(type, 3, [bytes([0b101])], null_count=1, children=columns)


@pytest.mark.parametrize(
    "make, want",
    [
        (lambda: na.c_array([True, None, False] * 7, na.bool_()), [True, None, False] * 7),
        (lambda: na.c_array(["a", None, "", "ünï"], na.string()), ["a", None, "", "ünï"]),
        (lists, [["a"], [], [None, "ccc", ""]]),
        (records, [{"a": 1, "b": "x"}, None, {"a": 3, "b": None}]),
        (words, ["green", "red", "", "green", ""]),
    ],
    ids=["bool", "string", "lists", "struct", "dictionary"],
)
def test_what_nanoarrow_made(make, want, stream):
    """Not Go's arrays that come back, but those of another library, whose values only Python knows."""
    source = c_device_array(make())
    with golib.GoArray.from_arrow(go.handed_by_nanoarrow(source, stream)) as taken, taken.copy_to_host() as host:
        taken.wait()
        assert nano.values(c_device_array(host)) == want
    driver.call("cuStreamSynchronize", driver.handle(stream))


@pytest.mark.two_devices
@pytest.mark.parametrize("name", ["int64", "bool", "utf8", "struct_nested"])
def test_on_the_second_device(name):
    with cuda.gpus[1], driver.stream() as other:
        for variant in go.VARIANTS:
            array = go.copied_by_nanoarrow(name, variant, other, device=1)
            with golib.GoArray.from_arrow(array) as taken, taken.copy_to(abi.CUDA, 0) as near:
                assert taken.describe()["device"] == "cuda:1"
                assert near.describe()["device"] == "cuda:0"
                assert go.device_difference(near, name, variant) == "", variant
                taken.wait()


NUMBERS = np.arange(1, 1001)


def numbers(stream):
    return go.handed_by_nanoarrow(nano.array(pinned(NUMBERS)), stream)


def values(taken):
    with taken.copy_to_host() as host:
        return host.values()


def test_copy_to_the_host_waits_for_the_event(stream):
    with driver.gate(stream) as gate:
        with golib.GoArray.from_arrow(numbers(stream)) as taken:
            assert not taken.ready()
            with go.opening(gate):
                assert values(taken) == NUMBERS.tolist()
            assert taken.ready()


@pytest.mark.parametrize("name", ["utf8", "list_struct", "dense_union", "run_end_encoded_int32"])
def test_offsets_are_read_after_the_event(name, stream):
    """Go reads offsets before it knows which bytes to copy."""
    with golib.GoArray.make(name, "nulls") as made:
        host = c_device_array(made)
    with driver.gate(stream) as gate:
        array = go.handed_by_nanoarrow(host, stream)
        with golib.GoArray.from_arrow(array) as taken:
            assert not taken.ready()
            with go.opening(gate):
                assert go.device_difference(taken, name, "nulls") == ""


def test_wait(stream):
    with driver.gate(stream) as gate, golib.GoArray.from_arrow(numbers(stream)) as taken:
        with go.opening(gate):
            taken.wait()
        assert taken.ready()


def test_copy_on_the_device_is_ordered_after_the_event(stream, other):
    """No thread waits: the copy is enqueued before the source is filled."""
    with driver.gate(stream) as gate:
        with golib.GoArray.from_arrow(numbers(stream)) as taken, taken.copy_to(abi.CUDA, 0, other) as copied:
            assert not copied.ready()
            gate.open()
            assert values(copied) == NUMBERS.tolist()


def test_source_is_released_after_the_copy(stream, other):
    """The copy reads the source while Go has let go of it."""
    handed = numbers(stream)
    handed.wait()
    with driver.gate(other) as gate:
        with golib.GoArray.from_arrow(handed) as taken:
            copied = taken.copy_to(abi.CUDA, 0, other)
        with copied:
            assert handed.releases == 0
            gate.open()
            assert values(copied) == NUMBERS.tolist()
    go.settle()
    assert handed.releases == 1


def test_memory_is_released_after_the_work_of_the_caller(stream, other):
    handed = numbers(stream)
    target = pinned(np.zeros(1000, "i8"))
    with driver.gate(other) as gate:
        with golib.GoArray.from_arrow(handed) as taken:
            taken.wait_on(other)
            at = go.Place(taken).buffers[1]
            driver.copy_to_host(target, at, other)
            taken.used_on(other)
        golib.ext.free_memory()
        assert handed.releases == 0
        gate.open()
        go.settle()
        assert handed.releases == 1
    np.testing.assert_array_equal(target, NUMBERS)


@pytest.mark.parametrize("thread", ["own", "other"])
def test_released_once(thread, stream):
    handed = numbers(stream)
    taken = golib.GoArray.from_arrow(handed)
    parts = [taken.slice(i, i + 10) for i in range(0, 100, 10)]
    exported = [c_device_array(part) for part in parts]
    taken.wait()
    taken.release(on_other_thread=thread == "other")
    for part in parts:
        part.release(on_other_thread=thread == "other")
    go.settle()
    assert handed.releases == 0
    back = golib.GoArray.from_arrow(exported[3])
    exported.clear()
    go.settle()
    assert handed.releases == 0
    assert values(back) == NUMBERS[30:40].tolist()
    back.release(on_other_thread=thread == "other")
    go.settle()
    assert handed.releases == 1


def test_full_validation_asks_the_driver(stream):
    handed = numbers(stream)
    handed.wait()
    golib.GoArray.from_arrow(handed, full_validation=True).release()
    go.settle()
    assert handed.releases == 1


@pytest.mark.machines("delayed", "random")
@pytest.mark.parametrize("name", ["int64", "bool", "utf8", "list_utf8", "struct", "map", "sparse_union", "run_end_encoded_int16"])
def test_slices(name, stream):
    """Bitmaps that begin inside a byte, offsets that do not begin at zero."""
    array = go.copied_by_nanoarrow(name, "nulls", stream)
    with golib.GoArray.from_arrow(array) as taken, golib.GoArray.make(name, "nulls") as host:
        length = host.describe()["length"]
        for i, j in [(1, length), (1, length - 1), (2, 3), (length - 1, length), (2, 2)]:
            with taken.slice(i, j) as part, part.copy_to_host() as got, host.slice(i, j) as want:
                assert got.difference(want) == "", (i, j)
            with taken.slice(i, j) as part, part.copy_to(abi.CUDA) as near, near.copy_to_host() as got, host.slice(i, j) as want:
                assert got.difference(want) == "", (i, j)


def test_slice_of_nanoarrow(stream):
    """An array with an offset of its own."""
    source = nano.array(na.c_array([None if i % 7 == 0 else i for i in range(100)], na.int32())[10:90])
    with golib.GoArray.from_arrow(go.handed_by_nanoarrow(source, stream)) as taken, taken.slice(3, 50) as part:
        assert go.Place(taken).shape == (80, 10)
        assert values(part) == [None if i % 7 == 0 else i for i in range(13, 60)]
    driver.call("cuStreamSynchronize", driver.handle(stream))


def test_page_locked_memory(stream):
    """The host reads it in place, after the event."""
    for name in ("int64", "utf8", "list_struct"):
        handed = go.copied_by_nanoarrow(name, "nulls", stream, abi.CUDA_HOST)
        with golib.GoArray.from_arrow(handed) as taken, golib.GoArray.make(name, "nulls") as want:
            assert taken.describe()["device"] == "cuda_host:0"
            assert taken.difference(want) == ""
            with taken.copy_to(abi.CUDA) as copied:
                assert go.device_difference(copied, name, "nulls") == ""
        go.settle()
        assert handed.releases == 1


def test_many_threads():
    def work(i):
        with driver.stream() as stream:
            for start in range(10 * i, 10 * i + 5):
                want = np.arange(start, start + 100)
                source = nano.array(pinned(want))
                with golib.GoArray.from_arrow(go.handed_by_nanoarrow(source, stream)) as taken, taken.copy_to(abi.CUDA) as copied:
                    assert values(copied) == want.tolist()
                    back = c_device_array(copied)
                assert nano.values(go.copy_by_nanoarrow(back, stream)) == want.tolist()
                del back

    on_threads(8, work)
