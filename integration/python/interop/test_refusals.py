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
        label(s.array, device_type, -1 if device_type == abi.CPU else 0)
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


# The exception for a device, and the releases of the array and of the schema by then.
BY_POINTER = {
    abi.CUDA: (ImportError, "PyArrow is not built with CUDA support", [0, 0]),
    abi.CUDA_HOST: (pa.ArrowKeyError, f"Device type {abi.CUDA_HOST} ?is not registered", [0, 1]),
    abi.CUDA_MANAGED: (pa.ArrowKeyError, f"Device type {abi.CUDA_MANAGED} ?is not registered", [0, 1]),
}


@each_kind
@pytest.mark.parametrize("device_type", BY_POINTER)
def test_pyarrow_refuses_other_devices_by_pointer(cls, arrow_cls, device_type):
    """It leaves the array to its caller, who releases it."""
    error, text, released = BY_POINTER[device_type]
    with cls.make("struct_nested", "nulls") as go, abi.structs() as s:
        go._export_to_c_device(*s.addresses)
        label(s.array, device_type)
        releases = abi.count_releases(s.array), abi.count_releases(s.schema)
        with pytest.raises(error, match=text):
            arrow_cls._import_from_c_device(*s.addresses)
        assert [r.count for r in releases] == released
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
@pytest.mark.parametrize("device_type, name", [(abi.CPU, "cpu"), (abi.CUDA_HOST, "cuda_host:0"), (abi.CUDA_MANAGED, "cuda_managed:0")])
def test_memory_that_the_host_reads_is_offered_as_cpu(cls, arrow_cls, device_type, name):
    """AsCPU makes PyArrow accept pinned and managed memory."""
    device_id = -1 if device_type == abi.CPU else 0
    with labelled(cls, device_type) as go, abi.structs() as s:
        assert go.describe()["device"] == name
        go._export_to_c_device(*s.addresses)
        assert (s.array.device_type, s.array.device_id) == (device_type, device_id), "without the option it keeps its label"
        addresses = abi.buffer_addresses(s.array.array)
        s.release()
        go._export_to_c_device(*s.addresses, for_host=True)
        assert (s.array.device_type, s.array.device_id, s.array.sync_event) == (abi.CPU, -1, None)
        assert abi.buffer_addresses(s.array.array) == addresses
        arrow = arrow_cls._import_from_c_device(*s.addresses)
        arrow.validate(full=True)
        assert arrow.to_pylist() == go.values()


@pytest.mark.parametrize("name", ["interval_months", "interval_day_time"])
def test_pyarrow_has_no_class_for_arrays_of_two_intervals(name):
    """It raises KeyError, and leaks nothing; in a batch it accepts them."""
    for variant in golib.ext.cases()["variants"]:
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


# Into Go. The tables of what is refused are in the tests of cdevice; these are wired to it.


def test_go_takes_a_numbered_cpu_and_an_unknown_device():
    for device_type, device_id, name in ((abi.CPU, 0, "cpu"), (99, 7, "device_type(99):7")):
        with abi.structs() as s:
            pa.array([1, 2])._export_to_c_device(*s.addresses)
            label(s.array, device_type, device_id)
            s.array.reserved[0] = 12345
            with golib.GoArray._import_from_c_device(*s.addresses) as go:
                assert go.describe()["device"] == name


# What PyArrow exports, what becomes of the structs, and the error of Go.
REFUSED = {
    "device": (pa.record_batch({"a": [1, 2]}), lambda s: label(s.array, abi.CPU, 5), "ArrowDeviceArray.device_id = 5, want -1 for cpu"),
    "released array": (pa.record_batch({"a": [1]}), lambda s: abi.release(s.array), "ArrowDeviceArray.array.release = NULL"),
    "released schema": (pa.record_batch({"a": [1]}), lambda s: abi.release(s.schema), "ArrowSchema.release = NULL"),
    "no batch": (pa.array([1]), None, "ArrowSchema.format"),
    "nulls of a batch": (pa.array([{"a": 1}, None]), None, "ArrowDeviceArray.array.null_count = 1, want 0 for a record batch"),
    "no type of Go": (pa.record_batch({"a": pa.array([[], []], pa.list_(pa.int8(), 0))}), None, 'format = "+w:0"'),
}


@pytest.mark.parametrize("made, change, text", REFUSED.values(), ids=REFUSED)
def test_each_struct_of_a_refused_import_is_released_once(made, change, text):
    with abi.structs() as s:
        made._export_to_c_device(*s.addresses)
        if change is not None:
            change(s)
        releases = [abi.count_releases(struct) for struct in (s.array, s.schema) if abi.is_filled(struct)]
        with pytest.raises(golib.GoError, match=re.escape(text)):
            golib.GoBatch._import_from_c_device(*s.addresses)
        assert [r.count for r in releases] == [1] * len(releases)
        assert s.released


def test_go_refuses_an_array_with_the_schema_of_another():
    with abi.structs() as s:
        pa.array(["a"])._export_to_c_device(s.addresses[0])
        pa.int64()._export_to_c(s.addresses[1])
        with pytest.raises(golib.GoError, match="array.n_buffers = 3, want 2 for int64: invalid"):
            golib.GoArray._import_from_c_device(*s.addresses)
        assert s.released


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
