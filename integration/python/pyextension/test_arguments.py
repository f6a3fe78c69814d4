"""Objects of other libraries as arguments: which protocol is asked for, and what is refused."""

import ctypes
import gc
import weakref

import duckdb
import nanoarrow
import numpy
import pandas
import polars
import pyarrow as pa
import pytest

import abi
from streams import on_threads

BATCH = pa.record_batch({"a": [1, 2, None], "b": ["x", None, "z"]})
EMPTY = pa.chunked_array([], pa.int64())
ARROW = {
    "__arrow_c_schema__": lambda: BATCH.schema.__arrow_c_schema__(),
    "__arrow_c_array__": lambda: BATCH.__arrow_c_array__(),
    "__arrow_c_device_array__": lambda: BATCH.__arrow_c_device_array__(),
    "__arrow_c_stream__": lambda: pa.table(BATCH).__arrow_c_stream__(),
}


class Fake:
    """An object with some methods, whose calls it records."""

    def __init__(self, **methods):
        self.calls = []
        for name, method in methods.items():
            setattr(self, name, self._recorded(name, method))

    def _recorded(self, name, method):
        def call(*arguments, **keywords):
            self.calls.append(name)
            return method(*arguments, **keywords)

        return call


def rows(result):
    """The rows of a batch, or of a reader."""
    return result.to_pyarrow().to_pylist()


# In the order in which they are asked for, without device streams, which no library offers.
@pytest.mark.parametrize(
    "function, methods",
    [
        ("echo_reader", ["__arrow_c_device_array__", "__arrow_c_stream__", "__arrow_c_array__"]),
        ("echo_batch", ["__arrow_c_device_array__", "__arrow_c_array__", "__arrow_c_stream__"]),
        ("echo", ["__arrow_c_device_array__", "__arrow_c_array__", "__arrow_c_stream__"]),
    ],
)
def test_order_of_protocols(ext, function, methods):
    for i, first in enumerate(methods):
        fake = Fake(__arrow_c_schema__=ARROW["__arrow_c_schema__"], **{name: ARROW[name] for name in methods[i:]})
        assert rows(getattr(ext, function)(fake)) == BATCH.to_pylist()
        assert fake.calls == [first]


def test_objects_of_the_library_are_passed_on_as_they_are(ext):
    with ext.echo_batch(BATCH) as batch:
        address = batch.to_pyarrow()["a"].buffers()[1].address
        assert address == BATCH["a"].buffers()[1].address
        with ext.echo_batch(batch) as again:
            assert again.to_pyarrow()["a"].buffers()[1].address == address
        assert rows(ext.echo_reader(batch)) == BATCH.to_pylist()
        assert rows(ext.echo(batch)) == BATCH.to_pylist()
        with batch.column("a") as column, ext.echo_array(column) as same:
            assert same.to_pyarrow().to_pylist() == [1, 2, None]
        with batch.schema as schema, ext.echo_schema(schema) as same:
            assert same.names == ["a", "b"]
    with ext.echo_reader(BATCH) as reader:
        assert rows(ext.echo_batch(reader)) == BATCH.to_pylist()
        with pytest.raises(ValueError, match="count: argument stream: .*consumed"):
            ext.count(reader)


@pytest.mark.parametrize(
    "value",
    [
        BATCH,
        pa.table(BATCH),
        pa.RecordBatchReader.from_batches(BATCH.schema, [BATCH]),
        polars.DataFrame(BATCH),
        pandas.DataFrame({"a": pandas.array([1, 2, None], dtype="Int64"), "b": ["x", None, "z"]}),
        nanoarrow.Array(BATCH),
    ],
    ids=lambda value: f"{type(value).__module__}.{type(value).__name__}",
)
def test_batches_of_other_libraries(ext, value):
    reads_once = isinstance(value, pa.RecordBatchReader)
    assert rows(ext.echo_reader(value)) == BATCH.to_pylist()
    if not reads_once:
        assert rows(ext.echo_batch(value)) == BATCH.to_pylist()
        assert rows(ext.echo(value)) == BATCH.to_pylist()
        assert ext.count(value) == ext.host_rows(value) == 3
        assert rows(ext.echo_reader([value, value])) == BATCH.to_pylist() * 2


def test_relations_of_duckdb(ext):
    with duckdb.connect() as connection:
        relation = connection.sql("select range as a from range(3000)")
        assert ext.count(relation) == 3000
        with ext.echo_batch(connection.sql("select range as a from range(3000)")) as batch:
            assert batch.to_pyarrow()["a"].to_pylist() == list(range(3000))


@pytest.mark.parametrize(
    "value",
    [
        pa.array([1, 2, None]),
        pa.chunked_array([[1], [2, None]]),
        EMPTY,
        polars.Series([1, 2, None]),
        pandas.Series([1, 2, None], dtype="Int64"),
        nanoarrow.Array([1, 2, None], nanoarrow.int64()),
        nanoarrow.ArrayStream([1, 2, None], nanoarrow.int64()),
    ],
    ids=["Array", "ChunkedArray", "no chunks", "polars", "pandas", "nanoarrow", "stream of nanoarrow"],
)
def test_columns_of_other_libraries(ext, value):
    if isinstance(value, pandas.Series) and not hasattr(value, "__arrow_c_stream__"):
        pytest.skip("the pandas of Python 3.10 gives no columns")
    expected = [] if value is EMPTY else [1, 2, None]
    functions = (ext.echo,) if isinstance(value, nanoarrow.ArrayStream) else (ext.echo_array, ext.echo, lambda v: ext.echo([v])[0])
    for echo in functions:
        with echo(value) as array:
            assert type(array).__name__ == "Array"
            assert array.to_pyarrow().to_pylist() == expected
            assert array.type == "int64"
            assert len(array) == len(expected)


def test_schemas_of_other_libraries(ext):
    for value in (BATCH.schema, polars.DataFrame(BATCH).schema, nanoarrow.Schema(BATCH.schema)):
        with ext.echo_schema(value) as schema:
            assert schema.names == ["a", "b"]
            assert schema.to_pyarrow().field("a").type == pa.int64()


def test_optional_arguments_lists_and_dicts(ext):
    batch, number = ext.echo_optional(BATCH, 2)
    assert (rows(batch), number) == (BATCH.to_pylist(), 2.0)
    assert ext.echo_optional(BATCH)[1] is None
    batches = ext.echo_batches([BATCH, polars.DataFrame(BATCH)])
    assert [rows(b) for b in batches] == [BATCH.to_pylist()] * 2
    arrays = ext.echo_arrays({"x": pa.array([1]), "y": polars.Series(["a"])})
    assert {name: array.to_pyarrow().to_pylist() for name, array in arrays.items()} == {"x": [1], "y": ["a"]}
    mixed = ext.echo([1, {"b": BATCH}, pa.array([2.5]), BATCH.schema])
    assert [type(v).__name__ for v in (mixed[1]["b"], *mixed[2:])] == ["RecordBatch", "Array", "Schema"]


# Bad arguments: each is an exception that names the argument.


def released(capsules):
    """The same capsules, with released structs."""
    types = {"arrow_schema": abi.ArrowSchema, "arrow_array": abi.ArrowArray, "arrow_array_stream": abi.ArrowArrayStream}
    types["arrow_device_array"] = abi.ArrowDeviceArray
    for capsule in capsules if isinstance(capsules, tuple) else [capsules]:
        name = abi.capsule_name(capsule)
        abi.release(types[name].from_address(abi.capsule_pointer(capsule, name)))
    return capsules


ARRAY, DEVICE_ARRAY, STREAM = ARROW["__arrow_c_array__"], ARROW["__arrow_c_device_array__"], ARROW["__arrow_c_stream__"]
BAD = {
    "int": (lambda: 5, TypeError, "is wanted, not int"),
    "None": (lambda: None, TypeError, "is wanted, not NoneType"),
    "str": (lambda: "text", TypeError, "is wanted, not str"),
    "dict": (lambda: {}, TypeError, "is wanted, not dict"),
    "class": (lambda: polars.DataFrame, TypeError, "is wanted, not the class DataFrame"),
    "lazy": (lambda: polars.LazyFrame({"a": [1]}), TypeError, r"not LazyFrame: it has none of .*; call its collect\(\)"),
    "lazy class": (lambda: polars.LazyFrame, TypeError, "is wanted, not the class LazyFrame: [^;]*$"),
    "schema alone": (lambda: BATCH.schema, TypeError, "is wanted, not Schema|Field is no record batch"),
    "no capsules": (lambda: Fake(__arrow_c_array__=lambda: None), TypeError, "__arrow_c_array__ returned NoneType, not 2 capsules"),
    "one capsule": (lambda: Fake(__arrow_c_array__=lambda: ARRAY()[:1]), TypeError, "__arrow_c_array__ returned tuple, not 2 capsules"),
    "other things": (lambda: Fake(__arrow_c_array__=lambda: (1, 2)), TypeError, "__arrow_c_array__ returned int, not a capsule arrow_schema"),
    "null": (lambda: Fake(__arrow_c_stream__=lambda: None), TypeError, "__arrow_c_stream__ returned NoneType, not a capsule"),
    "exchanged": (lambda: Fake(__arrow_c_array__=lambda: ARRAY()[::-1]), ValueError, "the name 'arrow_array', not 'arrow_schema'"),
    "not of a device": (lambda: Fake(__arrow_c_device_array__=ARRAY), ValueError, "the name 'arrow_array', not 'arrow_device_array'"),
    "released array": (lambda: Fake(__arrow_c_array__=lambda: released(ARRAY())), ValueError, "consumed or released before"),
    "released device array": (lambda: Fake(__arrow_c_device_array__=lambda: released(DEVICE_ARRAY())), ValueError, "consumed or released before"),
    "released stream": (lambda: Fake(__arrow_c_stream__=lambda: released(STREAM())), ValueError, "consumed or released before"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("function", ["echo_reader", "echo_batch"])
def test_bad_arguments(ext, function, name):
    make, error, text = BAD[name]
    argument = {"echo_reader": "stream", "echo_batch": "batch"}[function]
    with pytest.raises(error, match=rf"^({function}: argument {argument}|source\[0\]): .*({text})") as raised:
        getattr(ext, function)(make())
    assert type(raised.value) is error


@pytest.mark.parametrize("name", ["__arrow_c_array__", "__arrow_c_device_array__", "__arrow_c_stream__"])
def test_consumed_twice(ext, name):
    capsules = ARROW[name]()
    fake = Fake(**{name: lambda: capsules})
    assert ext.count(fake) == 3
    with pytest.raises(ValueError, match="count: argument stream: .*consumed or released before"):
        ext.count(fake)


def test_closed_objects_are_refused(ext):
    batch, reader = ext.echo_batch(BATCH), ext.echo_reader(BATCH)
    batch.close()
    reader.close()
    with pytest.raises(ValueError, match="echo_batch: argument batch: the RecordBatch is closed"):
        ext.echo_batch(batch)
    with pytest.raises(ValueError, match=r"echo: argument value\[1\]: the RecordReader is closed"):
        ext.echo([1, reader])


def test_wrong_kinds_of_objects(ext):
    with ext.echo_array(pa.array([1])) as array, ext.echo_schema(BATCH.schema) as schema:
        with pytest.raises(TypeError, match="echo_batch: argument batch: a RecordBatch is wanted, not arrowdevice.Array"):
            ext.echo_batch(array)
        with pytest.raises(TypeError, match="echo_array: argument array: .*wanted, not arrowdevice.Schema"):
            ext.echo_array(schema)
    with pytest.raises(TypeError, match="echo_batch: argument batch: a column is no table or record batch"):
        ext.echo_batch(pa.array([1]))


class Boom(Exception):
    pass


@pytest.mark.parametrize("name", ["__arrow_c_device_array__", "__arrow_c_stream__", "__arrow_c_array__"])
def test_exceptions_of_protocols_go_on(ext, name):
    def fail():
        raise Boom("mine")

    with pytest.raises(Boom) as raised:
        ext.echo_reader(Fake(**{name: fail}))
    assert raised.value.args == ("mine",)
    if hasattr(raised.value, "add_note"):
        assert raised.value.__notes__ == ["echo_reader: argument stream"]
    else:
        assert str(raised.value.__cause__) == "echo_reader: argument stream"


def test_arguments_before_a_bad_one_are_released(ext):
    with pytest.raises(TypeError, match=r"argument batches\[2\]"):
        ext.echo_batches([BATCH, pa.table(BATCH), 5])
    with pytest.raises(TypeError, match="argument flag"):
        ext.echo_scalars("", 1, object())


def test_last_reference_to_an_object_ends_it(ext):
    """Memory that was handed on stays valid."""
    taken = ext.echo_batch(BATCH).to_pyarrow()
    assert taken.to_pylist() == BATCH.to_pylist()
    assert ext.echo_batch(BATCH).column("a").slice(1).to_pyarrow().to_pylist() == [2, None]


# What a call that fails has taken is given back: to the producer if the call was not made, else it is released.


class Tensor:
    """A producer of one tensor, in memory of NumPy. The device that it names decides on the stream that it is asked for."""

    def __init__(self, device_type, **version):
        self.values = numpy.arange(3)
        self.capsule, self.device = self.values.__dlpack__(**version), (device_type, 0)

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_):
        return self.capsule


class Interface:
    def __init__(self):
        self.__cuda_array_interface__ = {"shape": (1,), "typestr": "<i8", "data": (8, False), "version": 3}


VERSIONS = {"versioned": {"max_version": (1, 0)}, "legacy": {}}


def only(value, method):
    """What has one method of a value."""
    return Fake(**{method: getattr(value, method)})


NEW = {
    "schema": lambda ext: pa.schema({"a": pa.int64()}),
    "device array": lambda ext: pa.array(range(1000)),
    "array": lambda ext: only(pa.array(range(1000)), "__arrow_c_array__"),
    "stream": lambda ext: only(pa.table({"a": range(1000)}), "__arrow_c_stream__"),
    "stream of a column": lambda ext: pa.chunked_array([range(1000)]),
    "device stream": lambda ext: only(ext.counters(1000, 2), "__arrow_c_device_stream__"),
    "object": lambda ext: ext.echo_array(pa.array(range(1000))),
}


@pytest.mark.parametrize("name", NEW)
def test_arguments_that_are_not_imported_are_released(ext, name):
    """The one before is refused by Go. The memory is new, so that a leak is counted."""
    with ext.echo_array(pa.array([1])) as column, pytest.raises(TypeError, match="argument stream: a RecordBatch is wanted"):
        ext.read_two(column, NEW[name](ext))
    with ext.echo_array(pa.array([1])) as column, pytest.raises(TypeError, match="argument stream: a RecordBatch is wanted"):
        ext.read_two(column, [NEW[name](ext), NEW[name](ext)])
    ext.read_two(BATCH, [NEW[name](ext)])  # imported, and not read


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "call",
    [
        lambda ext, tensor: ext.echo_array(tensor(2)),  # its memory has no stream
        lambda ext, tensor: ext.echo_arrays({"wrong": ext.echo_batch(BATCH), "tensor": tensor(1)}),
        lambda ext, tensor: ext.echo_arrays({"tensor": tensor(1), "wrong": ext.echo_batch(BATCH)}),
    ],
    ids=["refused", "not imported", "imported"],
)
def test_tensors_of_a_call_that_fails_are_deleted(ext, call, version):
    made = []

    def tensor(device_type):
        producer = Tensor(device_type, **VERSIONS[version])
        made.append(weakref.ref(producer.values))
        return producer

    with pytest.raises((TypeError, ValueError, NotImplementedError)):
        call(ext, tensor)
    gc.collect()
    assert [values() for values in made] == [None] * len(made)


def test_arguments_are_given_back_if_the_call_is_not_made(ext):
    """An argument behind them is refused before Go is called."""
    tensors, interface, begun = [Tensor(1, **version) for version in VERSIONS.values()], Interface(), []

    def generate():
        begun.append(True)
        yield pa.table({"a": [1, 2]})

    alive, source = weakref.ref(interface), generate()
    for call in (lambda: ext.echo([*tensors, interface, object()]), lambda: ext.read_two(source, object())):  # noqa: F821 - deleted below
        with pytest.raises(TypeError, match="unsupported type object"):
            call()
    del interface, call
    gc.collect()
    assert alive() is None
    assert not begun and ext.count(source) == 2, "it was not touched"
    assert [abi.capsule_name(tensor.capsule) for tensor in tensors] == ["dltensor_versioned", "dltensor"]
    for tensor in tensors:
        with ext.echo_array(tensor) as array:
            assert array.to_pyarrow().to_pylist() == [0, 1, 2]


class Shared:
    """A producer that returns the same tensor each time."""

    def __init__(self):
        self.values = numpy.arange(10.0)
        self.capsule = self.values.__dlpack__(max_version=(1, 0))

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()

    def __dlpack__(self, **_):
        return self.capsule


def test_capsules_are_taken_once_in_a_call(ext):
    tensor, capsules = Shared(), BATCH.__arrow_c_array__()
    with pytest.raises(ValueError, match=r"echo: argument value\[1\]: __dlpack__ returned .*'used_dltensor_versioned'.*consumed before"):
        ext.echo([tensor, tensor])
    batch = Fake(__arrow_c_array__=lambda: capsules)
    with pytest.raises(ValueError, match=r"echo_batches: argument batches\[1\]: the ArrowSchema was consumed or released before"):
        ext.echo_batches([batch, batch])
    assert ext.host_rows(batch) == 3, "the call was not made"
    with ext.echo_array(tensor) as column:
        assert column.to_pyarrow().to_pylist() == tensor.values.tolist()


def test_code_of_a_later_argument_finds_them_consumed(ext):
    tensor, found = Shared(), []

    def other():
        found.append(abi.capsule_name(tensor.capsule))
        abi.rename_capsule(tensor.capsule, "mine")
        return ARROW["__arrow_c_array__"]()

    first, second = ext.echo([tensor, Fake(__arrow_c_array__=other)])
    assert found == ["used_dltensor_versioned"]
    abi.rename_capsule(tensor.capsule, found[0])  # its destructor needs the name
    assert first.to_pyarrow().to_pylist() == tensor.values.tolist()
    assert second.num_rows == 3


def test_one_stream_for_many_threads(ext):
    """One call takes it."""
    for _ in range(50):
        capsule, results = pa.table(BATCH).__arrow_c_stream__(), []
        stream = Fake(__arrow_c_stream__=lambda: capsule)

        def read(_):
            try:
                results.append(ext.count(stream))
            except ValueError as error:
                results.append("consumed" in str(error))

        on_threads(2, read)
        assert sorted(results) == [True, 3]


def test_mask_that_has_a_mask(ext):
    class Mask:
        @property
        def __cuda_array_interface__(self):
            return {"shape": (1,), "typestr": "<i4", "data": (0, False), "version": 3, "mask": self}

    with pytest.raises(ValueError, match="the mask has a mask"):
        ext.echo_array(Mask())


def test_lists_have_no_holes_while_they_are_made(ext):
    """Other code, such as a callback of the garbage collector, can find them."""
    seen = []

    def look(phase, info):
        for found in gc.get_objects():
            if type(found) is list and 0 < len(found) <= 40 and type(found[0]).__name__ == "RecordBatch":
                seen.extend(map(type, found))

    threshold = gc.get_threshold()
    gc.callbacks.append(look)
    gc.set_threshold(5)
    try:
        for _ in range(5):
            ext.echo_batches([BATCH] * 40)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(look)
    assert seen
    seen.clear()


def test_owner_of_another_library(ext):
    with ext.echo_batch(BATCH) as batch:
        owner, batch._owner = batch._owner, abi.new_capsule(1, "arrowdevice_handle", None)
        with pytest.raises(TypeError, match="the RecordBatch is that of another library"):
            batch.schema.names
        batch._owner = owner


def test_interrupts_of_an_objects_class_go_on(ext):
    class Interrupted:
        @property
        def shape(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ext.echo(Interrupted())


class Unnamed(type):
    __name__ = property(lambda of: None)


def test_types_whose_name_is_no_text(ext):
    class Odd(Exception, metaclass=Unnamed):
        pass

    def fails():
        yield BATCH
        raise Odd("odd")

    for value in (Odd, Odd()):
        with pytest.raises(TypeError, match=r"RecordBatch is wanted, not (the class )?\?"):
            ext.echo_batch(value)
    with pytest.raises(Odd):
        ext.count(fails())


class Refilled:
    """A producer that fills the struct of its only capsule again each time."""

    def __init__(self):
        self.capsule = pa.table(BATCH).__arrow_c_stream__()
        self.releases = []

    def __arrow_c_stream__(self):
        struct = abi.ArrowArrayStream.from_address(abi.capsule_pointer(self.capsule, "arrow_array_stream"))
        if not struct.release:
            new = pa.table(BATCH).__arrow_c_stream__()
            full = abi.ArrowArrayStream.from_address(abi.capsule_pointer(new, "arrow_array_stream"))
            ctypes.memmove(ctypes.addressof(struct), ctypes.addressof(full), ctypes.sizeof(full))
            full.release = None
        self.releases.append(abi.count_releases(struct))
        return self.capsule


def test_capsule_that_was_filled_again_before_a_refusal(ext):
    producer = Refilled()
    with pytest.raises(TypeError, match="unsupported type object"):
        ext.echo([producer, producer, object()])
    del producer.capsule
    assert [made.count for made in producer.releases] == [1, 1]
