"""Arrow C++ for Python: its device streams and asynchronous streams, as producer
and as consumer. It is PyArrow's own libarrow, so both see the same memory.

Data goes in and comes out as PyArrow's readers and batches. Objects end with
close(), or at the end of a with statement.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import types

import pyarrow as pa

import abi

# Of arrow::StatusCode, those that a test makes a source fail with.
STATUS = {
    "Out of memory": 1, "Key error": 2, "Type error": 3, "Invalid": 4, "IOError": 5, "Cancelled": 8,
    "Unknown error": 9, "NotImplemented": 10, "Serialization error": 11,
}  # fmt: skip


class CppError(Exception):
    """A Status of Arrow C++. If an asynchronous producer reported it, it has the
    producer's code and metadata (bytes)."""

    def __init__(self, text):
        self.status, code, metadata, self.message = text.split("\n", 3)
        self.code = int(code) if code else None
        self.metadata = bytes.fromhex(metadata)
        super().__init__(f"{self.status}: {self.message}")


def _library_path():
    default = pathlib.Path(__file__).resolve().parents[2] / "build" / "libcpppeer.so"
    return os.environ.get("CPPPEER", str(default))


_lib = ctypes.CDLL(_library_path())
_address, _int, _long, _text = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_char_p
_out_address = ctypes.POINTER(ctypes.c_void_p)
_source = [_address, _int, _long, _long, _int, _text]

for _name, _arguments in {
    "cpp_alive": [],
    "cpp_counters": [],
    "cpp_register_device": [],
    "cpp_copy_to_device": [_address, _address, _long, _address, _address],
    "cpp_export_stream": [*_source, _address],
    "cpp_export_chunked": [_address, _address],
    "cpp_import_chunked": [_address, _address],
    "cpp_reader_open": [_address, _out_address],
    "cpp_reader_schema": [_address, _address],
    "cpp_reader_next": [_address, _address],
    "cpp_reader_close": [_address],
    "cpp_consumer_new": [ctypes.c_uint64, _int, _out_address],
    "cpp_consumer_handler": [_address],
    "cpp_consumer_schema": [_address, _address],
    "cpp_consumer_next": [_address, _address, _address],
    "cpp_consumer_wait_for_release": [_address],
    "cpp_consumer_close": [_address],
    "cpp_producer_start": [*_source, _address, _out_address],
    "cpp_producer_close": [_address],
}.items():
    _function = getattr(_lib, _name)
    _function.argtypes, _function.restype = _arguments, ctypes.c_void_p
for _name in ("cpp_free", "cpp_consumer_cancel", "cpp_consumer_drop"):
    _function = getattr(_lib, _name)
    _function.argtypes, _function.restype = [_address], None
for _name in ("cpp_reader_device_type", "cpp_consumer_device_type"):
    _function = getattr(_lib, _name)
    _function.argtypes, _function.restype = [_address], ctypes.c_int32


def _take_text(address):
    try:
        return ctypes.string_at(address).decode()
    finally:
        _lib.cpp_free(address)


def _call(name, *arguments):
    error = getattr(_lib, "cpp_" + name)(*arguments)
    if error:
        raise CppError(_take_text(error))


def _create(name, *arguments):
    out = ctypes.c_void_p()
    _call(name, *arguments, ctypes.byref(out))
    return out.value


_call("register_device")


def stats():
    """Live objects. The bytes are those that were copied to a device."""
    return json.loads(_take_text(_lib.cpp_alive()))


def counters():
    """Counters since the library was loaded: closed sources, and requests of Arrow C++
    for the memory manager of EXT_DEV."""
    return json.loads(_take_text(_lib.cpp_counters()))


def copy_to_device(batch, device_id=0):
    """A copy of a pa.RecordBatch on an EXT_DEV, which PyArrow knows from here on:
    batch.copy_to(pa.default_cpu_memory_manager()) copies it back."""
    plain, schema, out = abi.ArrowArray(), abi.ArrowSchema(), abi.ArrowDeviceArray()
    batch._export_to_c(ctypes.addressof(plain), ctypes.addressof(schema))
    _call("copy_to_device", *(ctypes.addressof(s) for s in (plain, schema)), device_id, *(ctypes.addressof(s) for s in (out, schema)))
    return pa.RecordBatch._import_from_c_device(ctypes.addressof(out), ctypes.addressof(schema))


def _source_arguments(reader, device_type, device_id, fails_after, status, message):
    plain = abi.ArrowArrayStream()
    reader._export_to_c(ctypes.addressof(plain))
    if fails_after is None:
        fails_after = -1
    return plain, [ctypes.addressof(plain), device_type, device_id, fails_after, STATUS[status], message.encode()]


def export_stream(reader, address, device_type=abi.CPU, device_id=-1, fails_after=None, status="Invalid", message=""):
    """ExportDeviceRecordBatchReader of a pa.RecordBatchReader, which is used up,
    to an ArrowDeviceArrayStream. Batches for EXT_DEV are copied there, one by one.
    With fails_after the stream has an error instead of that batch."""
    plain, arguments = _source_arguments(reader, device_type, device_id, fails_after, status, message)
    _call("export_stream", *arguments, address)


@contextlib.contextmanager
def exported(reader, **options):
    """The struct that export_stream fills, for a with statement."""
    with abi.owned(abi.ArrowDeviceArrayStream()) as stream:
        export_stream(reader, ctypes.addressof(stream), **options)
        yield stream


@contextlib.contextmanager
def exported_chunks(chunked):
    """ExportDeviceChunkedArray of a pa.ChunkedArray, for a with statement."""
    with abi.owned(abi.ArrowDeviceArrayStream()) as stream:
        capsule = chunked.__arrow_c_stream__()
        _call("export_chunked", abi.capsule_pointer(capsule, "arrow_array_stream"), ctypes.addressof(stream))
        yield stream


def read_chunks(address):
    """ImportDeviceChunkedArray of the stream at an address, which it takes."""
    plain = abi.ArrowArrayStream()
    _call("import_chunked", address, ctypes.addressof(plain))
    capsule = abi.new_capsule(ctypes.addressof(plain), "arrow_array_stream", None)
    return pa.chunked_array(types.SimpleNamespace(__arrow_c_stream__=lambda requested_schema=None: capsule))


def _record_batch(array, schema):
    """A batch from a struct that was just filled, or None from one that was not."""
    return pa.RecordBatch._import_from_c(ctypes.addressof(array), schema) if abi.is_filled(array) else None


def _schema(name, handle):
    struct = abi.ArrowSchema()
    _call(name, handle, ctypes.addressof(struct))
    return pa.Schema._import_from_c(ctypes.addressof(struct))


class _Handle:
    def __init__(self, handle):
        self._handle = handle

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends this object; a second call does nothing."""
        handle, self._handle = self._handle, None
        if handle:
            self._end(handle)


class Reader(_Handle):
    """ImportDeviceRecordBatchReader of the stream at an address, which it takes.
    An iterable of batches, on the same memory, whose device is now the CPU."""

    def __init__(self, address):
        super().__init__(_create("reader_open", address))
        self.schema = _schema("reader_schema", self._handle)
        self.device_type = _lib.cpp_reader_device_type(self._handle)

    def read_next_batch(self):
        """The next batch, or None at the end."""
        array = abi.ArrowArray()
        _call("reader_next", self._handle, ctypes.addressof(array))
        return _record_batch(array, self.schema)

    def __iter__(self):
        return iter(self.read_next_batch, None)

    def read_all(self):
        return pa.Table.from_batches(self, self.schema)

    def _end(self, handle):
        _call("reader_close", handle)


class Consumer(_Handle):
    """CreateAsyncDeviceStreamHandler: give handler, an address, to a producer, and
    then iterate over (batch, metadata). close() cancels, takes the remaining tasks, and waits for the producer to release the handler; Arrow C++ alone does not."""

    def __init__(self, queue_size=5, threads=1):
        super().__init__(_create("consumer_new", queue_size, threads))
        self.handler = _lib.cpp_consumer_handler(self._handle)
        self._known_schema = None

    @property
    def schema(self):
        """Waits for the producer."""
        if self._known_schema is None:
            self._known_schema = _schema("consumer_schema", self._handle)
        return self._known_schema

    @property
    def device_type(self):
        return self.schema and _lib.cpp_consumer_device_type(self._handle)

    def next(self):
        """The next batch and its metadata (None if it has none), or None at the end."""
        schema = self.schema
        array, metadata = abi.ArrowArray(), abi.ArrowSchema()
        _call("consumer_next", self._handle, ctypes.addressof(array), ctypes.addressof(metadata))
        if not abi.is_filled(array):
            return None
        return _record_batch(array, schema), pa.Schema._import_from_c(ctypes.addressof(metadata)).metadata

    def __iter__(self):
        return iter(self.next, None)

    def read_all(self):
        return pa.Table.from_batches((batch for batch, _ in self), self.schema)

    def cancel(self):
        """Calls the producer's cancel. Batches may still come. The release of the
        handler is the end then, which Arrow C++ alone would wait for."""
        _lib.cpp_consumer_cancel(self._handle)

    def drop(self):
        """Drops the generator, Arrow C++'s only way to end early: the producer is not
        cancelled, and queued tasks are never extracted."""
        _lib.cpp_consumer_drop(self._handle)

    def wait_for_release(self):
        """Waits until the producer released the handler."""
        _call("consumer_wait_for_release", self._handle)

    def _end(self, handle):
        _call("consumer_close", handle)


class Producer(_Handle):
    """ExportAsyncRecordBatchReader of a pa.RecordBatchReader, which is used up, to
    the handler at an address. It begins at once, on threads of its own."""

    def __init__(self, reader, handler, device_type=abi.CPU, device_id=-1, fails_after=None, status="Invalid", message=""):
        plain, arguments = _source_arguments(reader, device_type, device_id, fails_after, status, message)
        super().__init__(_create("producer_start", *arguments, handler))

    def _end(self, handle):
        _call("producer_close", handle)
