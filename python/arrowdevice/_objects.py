"""Record batches, record readers, arrays and schemas that a library returned."""

from __future__ import annotations

import operator

from . import _host
from ._devices import CPU, CPU_ACCESSIBLE, CUDA_ACCESSIBLE, device_name

TYPE_CHECKING = False  # see __init__.py

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from typing import Any, overload

    import pyarrow
    from typing_extensions import Self


def _refuse_unknown(keywords):
    """Consumers may pass keywords of later versions, with None for what they do not need."""
    unknown = sorted(name for name, value in keywords.items() if value is not None)
    if unknown:
        raise NotImplementedError(f"unsupported keyword arguments: {', '.join(unknown)}")


class _SchemaArgument:
    """A schema, field or type of any library as an argument of a method: that alone of the object's protocols is used."""

    __slots__ = ("__arrow_c_schema__",)

    def __init__(self, schema):
        if not hasattr(schema, "__arrow_c_schema__") or isinstance(schema, type):
            raise TypeError(f"a schema is wanted, which has __arrow_c_schema__, not {type(schema).__name__}")
        self.__arrow_c_schema__ = schema.__arrow_c_schema__


class Object:
    """An object of a library. It ends with close(), at the end of a with statement, or when it is
    garbage."""

    # The owner is a capsule, which ends the object in Go when it is destroyed: it is C, since Python code can be interrupted by a
    # signal handler. C finds it by its name.
    __slots__ = ("_library", "_owner", "_device", "_rows", "__weakref__")

    def __init__(self, library, owner, device_type, device_id, rows):
        self._library, self._owner = library, owner
        self._device, self._rows = (device_type, device_id), rows

    def close(self) -> None:
        """Ends the object. Memory that was handed on stays valid, except by __cuda_array_interface__: its consumers
        keep the object instead."""
        self._owner = None

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._owner is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self):
        raise TypeError(f"a {type(self).__name__} cannot be pickled: pass it on as Arrow IPC, by to_pyarrow()")

    @property
    def device(self) -> str:
        """Where the memory is, such as "cpu" or "cuda:0"; of a reader without the number."""
        return device_name(*self._device)

    def _ask(self, name, *arguments):
        return self._library.ask(name, self, *arguments)

    # Exports.

    def _check_requested(self, schema, others):
        """The schema that a consumer requests is checked; the consumer casts. Other arguments are refused."""
        _refuse_unknown(others)
        if schema is not None:
            self._ask(".requested", self._library.module.count_fields(schema))

    def __arrow_c_schema__(self) -> object:
        """A capsule "arrow_schema"."""
        return self._ask(".export", "schema")

    def _refuse_device(self):
        if self._device[0] not in CPU_ACCESSIBLE:
            raise TypeError(
                f"the {type(self).__name__} is in memory of the device {self.device}, which the CPU cannot access: "
                "call to_host() first"
            )


class _Copies(Object):
    """What batches, readers and arrays have in common."""

    __slots__ = ()

    def to_host(self) -> Self:
        """The same in memory that the CPU can access: a copy, or a view if it is there already."""
        return self._ask(".to_host")

    def to_device(self, device: str) -> Self:
        """A copy on a device, such as "cuda:0", "cuda", "cuda_host:0", "cuda_managed:0" or "cpu"."""
        return self._ask(".to_device", device)


class _DeviceArrays(_host.Compared, _Copies):
    """What batches and arrays have in common."""

    __slots__ = ()

    def __len__(self) -> int:
        return self._rows

    def slice(self, start: int, stop: int | None = None) -> Self:
        """Rows start to stop, without a copy. Negative numbers count from the end."""
        start, stop, _ = slice(start, stop).indices(self._rows)
        return self._ask(".slice", start, max(start, stop))

    def _as_cpu(self):
        """The same memory as the CPU's: PyArrow refuses page-locked and managed memory of a GPU."""
        return self if self._device[0] == CPU else self.to_host()

    def _repr_html_(self) -> str | None:
        return _host.as_html(self)

    def synchronize(self) -> None:
        """Waits until pending work on the memory has completed."""
        self._ask(".synchronize")

    def for_cudf(self, *, lose_time_zones: bool = False) -> Self:
        """The same as libcudf imports it without loss, for pylibcudf's from_arrow: a copy where it must change.
        Timestamps with a time zone are refused unless their zones may be lost."""
        return self._ask(".for_cudf", bool(lose_time_zones))

    def from_cudf(self, schema: Any) -> Self:
        """The same, which cuDF made, with a schema (of an array: a field or type) that it had before for_cudf()."""
        return self._ask(".from_cudf", _SchemaArgument(schema))

    def __arrow_c_device_array__(self, requested_schema: object | None = None, **kwargs: Any) -> tuple[object, object]:
        """Capsules "arrow_schema" and "arrow_device_array"."""
        self._check_requested(requested_schema, kwargs)
        return self._ask(".export", "device_array")


class _HostArrays:
    """Protocols of memory that the CPU can access. Objects of other memory do not have them: a consumer
    would copy through the host without being asked to."""

    __slots__ = ()

    def __arrow_c_array__(self, requested_schema: object | None = None, **kwargs: Any) -> tuple[object, object]:
        """Capsules "arrow_schema" and "arrow_array"."""
        self._check_requested(requested_schema, kwargs)
        return self._ask(".export", "array")


class _HostStreams:
    __slots__ = ()

    def __arrow_c_stream__(self, requested_schema: object | None = None, **kwargs: Any) -> object:
        """A capsule "arrow_array_stream"."""
        self._check_requested(requested_schema, kwargs)
        return self._ask(".export", "stream")


class _HostBatches(_HostArrays, _HostStreams):
    __slots__ = ()


if TYPE_CHECKING:  # which cannot know where memory is, and so sees these protocols on all objects
    _SeenArrays = _HostArrays
    _SeenStreams = _HostStreams
    _SeenBatches = _HostBatches
else:
    _SeenArrays = _SeenStreams = _SeenBatches = object


class _Named(Object):
    """What has a schema with fields."""

    __slots__ = ()

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return self._ask(".names")


class _WithSchema(_Named):
    __slots__ = ()

    @property
    def schema(self) -> Schema:
        """The schema."""
        return Schema.of(self)


class Schema(_host.Compared, _Named):
    """A schema. pa.schema(schema) makes one of PyArrow's."""

    __slots__ = ("_text",)

    @classmethod
    def of(cls, thing):
        """The schema of another object, which it keeps."""
        return _SchemaOf(thing)

    def __str__(self) -> str:
        return self._ask(".describe_schema")

    def __repr__(self) -> str:
        return f"<arrowdevice.Schema: {', '.join(self.names)}>"

    def to_pyarrow(self) -> pyarrow.Schema:
        """A pyarrow.Schema."""
        return _host.require("pyarrow").schema(self)


class _SchemaOf(Schema):
    """The schema of an object that has a handle of its own."""

    __slots__ = ("_thing",)

    def __init__(self, thing):
        self._thing, self._library = thing, thing._library
        self._device, self._rows = (CPU, -1), -1

    @property
    def _owner(self):
        return self._thing._owner

    def _ask(self, name, *arguments):
        return self._thing._ask(name, *arguments)

    def close(self):
        """The schema ends with the object."""



_SchemaOf.__name__ = _SchemaOf.__qualname__ = Schema.__name__


class RecordBatch(_host.Rows, _WithSchema, _DeviceArrays, _SeenBatches):
    """A record batch. Consumers take it by the Arrow PyCapsule interface, on a device by
    __arrow_c_device_array__; if the CPU can access its memory, also by __arrow_c_array__ and
    __arrow_c_stream__."""

    __slots__ = ()

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self._rows

    @property
    def num_columns(self) -> int:
        """The number of columns."""
        return len(self.names)

    def column(self, which: int | str) -> Array:
        """The column with an index or a name."""
        if isinstance(which, str):
            names = self.names
            if names.count(which) != 1:
                raise KeyError(f"{names.count(which)} columns have the name {which!r}; there are {names}")
            which = names.index(which)
            return self._ask(".column", which)
        index = operator.index(which)
        count = self.num_columns
        if not -count <= index < count:
            text = index if index.bit_length() < 64 else f"of {index.bit_length()} bits"
            raise IndexError(f"there is no column {text}: the batch has {count}")
        return self._ask(".column", index % count)

    @property
    def columns(self) -> list[Array]:
        """All columns."""
        return [self.column(i) for i in range(self.num_columns)]

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, which: slice) -> Self: ...
        @overload
        def __getitem__(self, which: int | str) -> Array: ...

    else:

        def __getitem__(self, which):
            """A column by its index or name, or rows by a slice."""
            return _rows(self, which) if isinstance(which, slice) else self.column(which)

    def __iter__(self) -> Iterator[Array]:
        return iter(self.columns)

    def __contains__(self, which: object) -> bool:
        """Whether there is a column of that name, or one that is equal."""
        return which in (self.names if isinstance(which, str) else self.columns)

    def to_pyarrow(self) -> pyarrow.RecordBatch:
        """A pyarrow.RecordBatch of the same memory, which the CPU must be able to access."""
        self._refuse_device()
        return _host.require("pyarrow").record_batch(self._as_cpu())

    def __repr__(self) -> str:
        if self.closed:
            return "<arrowdevice.RecordBatch: closed>"
        return f"<arrowdevice.RecordBatch: {self._rows} rows of {', '.join(self.names)} on {self.device}>"


class Array(_host.Column, _DeviceArrays, _SeenArrays):
    """An array: one column. Consumers take it by the Arrow PyCapsule interface, by DLPack, and, if CUDA can
    access the memory, by the CUDA Array Interface."""

    __slots__ = ()

    @property
    def type(self) -> str:
        """The data type, as a text."""
        return self._ask(".describe_schema")

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, which: slice) -> Self: ...
        @overload
        def __getitem__(self, which: int) -> Any: ...

    else:

        def __getitem__(self, which):
            """The value with an index, or rows by a slice."""
            return _rows(self, which) if isinstance(which, slice) else self.value(which)

    def to_pyarrow(self) -> pyarrow.Array:
        """A pyarrow.Array of the same memory, which the CPU must be able to access."""
        self._refuse_device()
        return _host.require("pyarrow").array(self._as_cpu())

    def __dlpack_device__(self) -> tuple[int, int]:
        """The type and the number of the device."""
        return self._ask(".dlpack_device")

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """A capsule "dltensor_versioned", or "dltensor" for a consumer of before DLPack 1.0."""
        _refuse_unknown(kwargs)
        versioned = max_version is not None and tuple(max_version) >= (1, 0)
        elsewhere = dl_device is not None and tuple(map(int, dl_device)) != self.__dlpack_device__()
        if not copy:
            if elsewhere:
                raise BufferError(f"the memory is on {self.device}: call to_host() or to_device(), and pass the result on")
            return self._tensor(versioned, stream, False)
        with self.to_device(device_name(*map(int, dl_device)) if elsewhere else self.device) as made:
            if stream == -1:  # it is ready, as far as the consumer knows
                made.synchronize()
            return made._tensor(versioned, stream, True)

    def _tensor(self, versioned, stream, is_copied):
        if stream is None and self._device[0] != CPU and self._device[0] in CPU_ACCESSIBLE:
            self.synchronize()  # NumPy reads it on the host, without a stream
        return self._ask(".dlpack", versioned, stream, is_copied)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The dict of the CUDA Array Interface, version 3."""
        if self._device[0] not in CUDA_ACCESSIBLE:
            raise AttributeError(f"the memory is on {self.device}, which CUDA cannot access")
        return self._ask(".cuda_array", None)

    def __repr__(self) -> str:
        return "<arrowdevice.Array: closed>" if self.closed else f"<arrowdevice.Array: {self._rows} {self.type} on {self.device}>"


def _rows(value, which):
    """The rows of a slice object."""
    if which.step not in (None, 1):
        raise ValueError("a slice of rows has no step")
    return value.slice(which.start or 0, which.stop)


class RecordReader(_host.Rows, _WithSchema, _Copies, _SeenStreams):
    """A stream of record batches, which is read once: by iteration (also "async for"), or by the consumer
    that takes it by the Arrow PyCapsule interface, of a device by __arrow_c_device_stream__, and if the
    CPU can access the memory also by __arrow_c_stream__."""

    __slots__ = ()

    def __iter__(self) -> Iterator[RecordBatch]:
        return self

    def __next__(self) -> RecordBatch:
        batch = self._ask(".next")
        if batch is None:
            raise StopIteration
        return batch

    def __aiter__(self) -> AsyncIterator[RecordBatch]:
        return self

    async def __anext__(self) -> RecordBatch:
        batch = await self._library.wait(self._library.module.begin_ask, ".next", self)
        if batch is None:
            raise StopAsyncIteration
        return batch

    def read_all(self) -> list[RecordBatch]:
        """All batches that are left."""
        return self._ask(".read_all")

    def for_cudf(self, *, lose_time_zones: bool = False) -> Iterator[RecordBatch]:
        """An iterator of the batches that are left, each as its for_cudf() gives it: pylibcudf takes batches, and no
        device streams."""
        for batch in self:
            yield batch.for_cudf(lose_time_zones=lose_time_zones)

    def __arrow_c_device_stream__(self, requested_schema: object | None = None, **kwargs: Any) -> object:
        """A capsule "arrow_device_array_stream"."""
        self._check_requested(requested_schema, kwargs)
        return self._ask(".export", "device_stream")

    def to_pyarrow(self) -> pyarrow.Table:
        """A pyarrow.Table of the batches that are left, in memory that the CPU must be able to access."""
        self._refuse_device()
        pyarrow = _host.require("pyarrow")
        # Batch by batch, so that signal handlers run between two. The end has the schema, and ends the reader.
        batches = [batch.to_pyarrow() for batch in self]
        end = _host.consume(pyarrow.table, self)
        return pyarrow.Table.from_batches([*batches, *end.to_batches()], end.schema)

    def __repr__(self) -> str:
        if self.closed:
            return "<arrowdevice.RecordReader: closed>"
        return f"<arrowdevice.RecordReader: {', '.join(self.names)} on {self.device}>"


def _host_class(base, *protocols):
    """The class of objects whose memory the CPU can access. Its name is that of the base class."""
    members = {"__slots__": (), "__doc__": base.__doc__, "__module__": base.__module__, "__qualname__": base.__qualname__}
    return type(base.__name__, (*protocols, base), members)


_HOST = {
    "b": _host_class(RecordBatch, _HostBatches),
    "r": _host_class(RecordReader, _HostStreams),
    "a": _host_class(Array, _HostArrays),
    "s": Schema,
}
_DEVICE = {"b": RecordBatch, "r": RecordReader, "a": Array, "s": Schema}


def wrap(library):
    """What makes the objects of a library."""

    def make(kind, owner, device_type, device_id, rows):
        return (_HOST if device_type in CPU_ACCESSIBLE else _DEVICE)[kind](library, owner, device_type, device_id, rows)

    return make
