"""Each side refuses arrays that it does not support with a clear error; nothing leaks,
and nothing is released twice."""

import re

import pyarrow as pa
import pytest

import abi
import golib

each_kind = pytest.mark.parametrize("cls, arrow_cls", [(golib.GoArray, pa.Array), (golib.GoBatch, pa.RecordBatch)], ids=["array", "batch"])
each_device = pytest.mark.parametrize("device_type", [abi.CUDA, abi.CUDA_HOST, abi.CUDA_MANAGED], ids=["cuda", "cuda_host", "cuda_managed"])


def label(device_array, device_type, device_id=0):
    """Says that the memory is on another device than it is."""
    device_array.device_type, device_array.device_id = device_type, device_id


def in_capsule(capsule):
    return abi.ArrowDeviceArray.from_address(abi.capsule_pointer(capsule, "arrow_device_array"))


def labelled(cls, device_type):
    """A Go object that was imported from such a struct."""
    with cls.make("struct_nested", "nulls") as go, abi.structs() as s:
        go._export_to_c_device(*s.addresses)
        label(s.array, device_type)
        return cls._import_from_c_device(*s.addresses)


class Relabelled:
    """Another object's capsules, with another device."""

    def __init__(self, go, device_type):
        self.go, self.device_type = go, device_type

    def __arrow_c_device_array__(self, requested_schema=None, **kwargs):
        schema, array = self.go.__arrow_c_device_array__(requested_schema, **kwargs)
        label(in_capsule(array), self.device_type)
        return schema, array


# Into PyArrow from PyPI, which knows the CPU only.


@each_kind
def test_pyarrow_refuses_cuda_by_pointer(cls, arrow_cls):
    with cls.make("struct_nested", "nulls") as go, abi.structs() as s:
        go._export_to_c_device(*s.addresses)
        label(s.array, abi.CUDA)
        releases = abi.count_releases(s.array), abi.count_releases(s.schema)
        with pytest.raises(ImportError, match="PyArrow is not built with CUDA support"):
            arrow_cls._import_from_c_device(*s.addresses)
        assert [r.count for r in releases] == [0, 0], "PyArrow leaves both to us"
        s.release()
        assert [r.count for r in releases] == [1, 1]


@each_kind
@pytest.mark.parametrize("device_type", [abi.CUDA_HOST, abi.CUDA_MANAGED])
def test_pyarrow_refuses_other_devices_by_pointer(cls, arrow_cls, device_type):
    with cls.make("struct_nested", "nulls") as go, abi.structs() as s:
        go._export_to_c_device(*s.addresses)
        label(s.array, device_type)
        releases = abi.count_releases(s.array), abi.count_releases(s.schema)
        with pytest.raises(pa.ArrowKeyError, match=f"Device type {device_type} ?is not registered"):
            arrow_cls._import_from_c_device(*s.addresses)
        assert [r.count for r in releases] == [0, 1], "PyArrow leaves the array to us"
        s.release()
        assert [r.count for r in releases] == [1, 1]


@each_kind
@each_device
def test_pyarrow_refuses_other_devices_by_capsule(cls, arrow_cls, device_type):
    """The capsule's destructor runs while the exception is on its way."""
    make = pa.array if cls is golib.GoArray else pa.record_batch
    with cls.make("struct_nested", "nulls") as go:
        with pytest.raises(pa.ArrowKeyError, match=f"Device type {device_type} ?is not registered"):
            make(Relabelled(go, device_type))
        assert make(go).to_pylist() == go.values(), "the object can still be exported"


@each_kind
@pytest.mark.parametrize("device_type, name", [(abi.CUDA_HOST, "cuda_host:0"), (abi.CUDA_MANAGED, "cuda_managed:0")])
def test_memory_that_the_host_reads_is_offered_as_cpu(cls, arrow_cls, device_type, name):
    """AsCPU makes PyArrow accept pinned and managed memory."""
    with labelled(cls, device_type) as go, abi.structs() as s:
        assert go.describe()["device"] == name
        go._export_to_c_device(*s.addresses)
        assert (s.array.device_type, s.array.device_id) == (device_type, 0), "without the option it keeps its label"
        addresses = abi.buffer_addresses(s.array.array)
        s.release()
        go._export_to_c_device(*s.addresses, for_host=True)
        assert (s.array.device_type, s.array.device_id, s.array.sync_event) == (abi.CPU, -1, None)
        assert abi.buffer_addresses(s.array.array) == addresses
        arrow = arrow_cls._import_from_c_device(*s.addresses)
        arrow.validate(full=True)
        assert arrow.to_pylist() == go.values()


@each_kind
def test_cpu_memory_is_offered_as_cpu(cls, arrow_cls):
    with cls.make("struct_nested", "nulls") as go, abi.structs() as s:
        go._export_to_c_device(*s.addresses, for_host=True)
        assert (s.array.device_type, s.array.device_id, s.array.sync_event) == (abi.CPU, -1, None)
        assert arrow_cls._import_from_c_device(*s.addresses).to_pylist() == go.values()


@each_kind
def test_memory_that_the_host_cannot_read_is_carried_and_not_read(cls, arrow_cls):
    with labelled(cls, abi.CUDA) as go, abi.structs() as s:
        assert go.describe()["device"] == "cuda:0"
        for read in (go.values, go.copy_to_host, go.buffers, lambda: go._export_to_c_device(*s.addresses, for_host=True)):
            with pytest.raises(golib.GoError, match="not supported"):
                read()
        assert s.released, "a failed export writes nothing"
        go._export_to_c_device(*s.addresses)
        assert (s.array.device_type, s.array.device_id) == (abi.CUDA, 0)


@each_kind
def test_full_validation_needs_a_device_that_knows_its_memory(cls, arrow_cls):
    with cls.make("utf8", "nulls") as go, abi.structs() as s:
        go._export_to_c_device(*s.addresses)
        label(s.array, 10)
        with pytest.raises(golib.GoError, match=re.escape("device_type = rocm, want a device of this process")):
            cls._import_from_c_device(*s.addresses, full_validation=True)
        assert s.released


@pytest.mark.parametrize("name", ["interval_months", "interval_day_time"])
@pytest.mark.parametrize("variant", golib.ext.cases()["variants"])
def test_pyarrow_has_no_class_for_arrays_of_two_intervals(name, variant):
    """It raises KeyError, and leaks nothing; in a batch it accepts them."""
    with golib.GoArray.make(name, variant) as go, abi.structs() as s:
        with pytest.raises(KeyError):
            pa.array(go)
        go._export_to_c_device(*s.addresses)
        with pytest.raises(KeyError):
            pa.Array._import_from_c_device(*s.addresses)
        assert s.released
    with golib.GoBatch.make(name, variant) as go:
        batch = pa.record_batch(go)
        batch.validate(full=True)
        with pytest.raises(KeyError):
            batch.column(0)
        with golib.GoBatch.from_arrow(batch, full_validation=True) as back:
            assert back.difference(go) == ""


# Into Go.


def refused(cls, s, text):
    """Imports an array that must be refused: each struct is released once."""
    releases = [abi.count_releases(struct) for struct in (s.array, s.schema) if abi.is_filled(struct)]
    with pytest.raises(golib.GoError, match=re.escape(text)):
        cls._import_from_c_device(*s.addresses)
    assert [r.count for r in releases] == [1] * len(releases)
    assert s.released


@pytest.mark.parametrize("device_type, device_id, event, text", [
    (0, -1, None, "ArrowDeviceArray.device_type = 0, want a positive ArrowDeviceType"),
    (-1, -1, None, "ArrowDeviceArray.device_type = -1, want a positive ArrowDeviceType"),
    (abi.CPU, 5, None, "ArrowDeviceArray.device_id = 5, want -1 for cpu"),
    (abi.CPU, -1, 4096, "ArrowDeviceArray.sync_event = 0x1000, want NULL for cpu"),
    (abi.CUDA, -1, None, "ArrowDeviceArray.device_id = -1, want a device ordinal for cuda"),
    (abi.CUDA, 1 << 40, None, "ArrowDeviceArray.device_id = 1099511627776, want a device ordinal for cuda"),
])  # fmt: skip
@pytest.mark.parametrize("cls", [golib.GoArray, golib.GoBatch])
def test_go_refuses_devices_that_cannot_be(cls, device_type, device_id, event, text):
    with abi.structs() as s:
        pa.record_batch({"a": [1, 2]})._export_to_c_device(*s.addresses)
        label(s.array, device_type, device_id)
        s.array.sync_event = event
        refused(cls, s, text)


def test_go_takes_a_numbered_cpu_and_an_unknown_device():
    for device_type, device_id, name in ((abi.CPU, 0, "cpu"), (99, 7, "device_type(99):7")):
        with abi.structs() as s:
            pa.array([1, 2])._export_to_c_device(*s.addresses)
            label(s.array, device_type, device_id)
            s.array.reserved[0] = 12345
            with golib.GoArray._import_from_c_device(*s.addresses) as go:
                assert go.describe()["device"] == name


@pytest.mark.parametrize("cls", [golib.GoArray, golib.GoBatch])
def test_go_refuses_released_structs(cls):
    with abi.structs() as s:
        refused(cls, s, "already released")
    batch = pa.record_batch({"a": [1, 2]})
    with abi.structs() as s:
        batch._export_to_c_device(*s.addresses)
        abi.release(s.array)
        refused(cls, s, "ArrowDeviceArray.array.release = NULL")
    with abi.structs() as s:
        batch._export_to_c_device(*s.addresses)
        abi.release(s.schema)
        refused(cls, s, "ArrowSchema.release = NULL")


WRONG_SCHEMAS = {
    "fewer_buffers": (lambda: pa.array(["a"]), pa.int64(), "array.n_buffers = 3, want 2 for int64: invalid"),
    "more_buffers": (lambda: pa.array([1]), pa.string(), "array.n_buffers = 2, want 3 for utf8: invalid"),
    "no_child": (lambda: pa.array([1]), pa.list_(pa.int64()), "array.n_children = 0, want 1 for list"),
    "a_child": (lambda: pa.array([{"a": 1}]), pa.struct([]), "array.n_children = 1, want 0 for struct"),
    "another_child": (
        lambda: pa.array([{"a": 1}]),
        pa.struct([("a", pa.string())]),
        "array.children[0].n_buffers = 2, want 3 for utf8: invalid",
    ),
    "no_dictionary": (lambda: pa.array([1]), pa.dictionary(pa.int64(), pa.string()), "array.dictionary = NULL"),
    "a_dictionary": (lambda: pa.array(["a"]).dictionary_encode(), pa.int32(), "array.dictionary = 0x"),
}


@pytest.mark.parametrize("make, type, text", WRONG_SCHEMAS.values(), ids=WRONG_SCHEMAS)
def test_go_refuses_an_array_with_the_schema_of_another(make, type, text):
    with abi.structs() as s:
        make()._export_to_c_device(s.addresses[0])
        type._export_to_c(s.addresses[1])
        refused(golib.GoArray, s, "cdevice: import: ArrowDeviceArray." + text)


def test_go_refuses_a_batch_that_is_no_struct():
    with abi.structs() as s:
        pa.array([1])._export_to_c_device(*s.addresses)
        refused(golib.GoBatch, s, "ArrowSchema.format")


def test_go_refuses_a_batch_with_nulls_of_its_own():
    """A record batch has no place for them."""
    with abi.structs() as s:
        pa.array([{"a": 1}, None])._export_to_c_device(*s.addresses)
        refused(golib.GoBatch, s, "ArrowDeviceArray.array.null_count = 1, want 0 for a record batch")


def test_go_refuses_a_type_that_it_has_not():
    with abi.structs() as s:
        pa.array([[], []], pa.list_(pa.int8(), 0))._export_to_c_device(*s.addresses)
        refused(golib.GoArray, s, 'ArrowSchema.format = "+w:0"')


def test_go_refuses_a_child_that_was_moved_out():
    with abi.structs() as s:
        pa.record_batch({"a": [1], "b": [2]})._export_to_c_device(*s.addresses)
        child = s.array.array.children[1].contents
        moved = abi.ArrowArray.from_buffer_copy(child)
        child.release = None
        refused(golib.GoBatch, s, "ArrowDeviceArray.array.children[1].release = NULL")
        abi.release(moved)


def test_capsules_of_a_refused_import_are_empty():
    """Import takes the contents of the capsules even if it fails."""
    schema, array = pa.array([[], []], pa.list_(pa.int8(), 0)).__arrow_c_device_array__()
    with pytest.raises(golib.GoError, match="not implemented"):
        golib.GoArray.from_capsules(schema, array)
    assert not in_capsule(array).array.release


def test_capsules_of_another_kind_are_refused():
    array = pa.array([1])
    with pytest.raises(ValueError, match="the name 'arrow_array', not 'arrow_device_array'"):
        golib.GoArray.from_capsules(*array.__arrow_c_array__())


# Keywords.


@pytest.mark.parametrize("make", [lambda: pa.array([1]), lambda: pa.record_batch({"a": [1]})])
def test_pyarrow_refuses_unknown_keywords(make):
    assert len(make().__arrow_c_device_array__(None, later=None)) == 2
    with pytest.raises(NotImplementedError, match="later"):
        make().__arrow_c_device_array__(later=1)


@pytest.mark.parametrize("cls", [golib.GoArray, golib.GoBatch])
def test_go_refuses_unknown_keywords(cls):
    with cls.make("utf8", "nulls") as go:
        assert len(go.__arrow_c_device_array__(None, later=None)) == 2
        with pytest.raises(NotImplementedError, match="later"):
            go.__arrow_c_device_array__(later=1)


# Handles.


def test_released_object_is_an_error_and_not_a_crash():
    go = golib.GoArray.make("utf8", "nulls")
    go.release()
    go.release()
    with pytest.raises(golib.GoError, match="is closed"):
        go.values()
    with pytest.raises(golib.GoError, match="is closed"):
        go.__arrow_c_device_array__()
