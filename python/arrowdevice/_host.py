"""What people expect of results, through the libraries that they have installed: values of Python, and objects of
NumPy, pandas and polars. All of it is for memory that the CPU can access, and refuses other memory."""

from __future__ import annotations

import importlib
import operator
import reprlib
import sys

TYPE_CHECKING = False  # see __init__.py

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import numpy
    import pandas
    import polars

_NUMBERS = frozenset([*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64"])
_SHOWN_ROWS, _SHOWN_COLUMNS = 10, 20

_as_py = operator.methodcaller("as_py")


def require(name: str) -> Any:
    """A module that the package does without until someone asks for it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"this needs {name}, which cannot be imported: {error}", name=name) from error


def consume(consumer: Any, reader: Any) -> Any:
    """What a consumer in C makes of a reader. It raises an exception of its own if that of a signal handler, such as KeyboardInterrupt,
    ends the stream: that one is raised by the next call of a function in Python, here."""
    try:
        return consumer(reader)
    except Exception:
        _be_interrupted()
        raise


def _be_interrupted():
    pass


class Compared:
    """Objects that are equal where PyArrow's equals() says so. Like PyArrow's they have no hash."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        pyarrow = sys.modules.get("pyarrow")
        if hasattr(type(other), "_ask") and type(other).__name__ == type(self).__name__:
            other = other.to_pyarrow()  # it may be of another copy of this package
        elif pyarrow is None or not isinstance(other, (pyarrow.Array, pyarrow.RecordBatch, pyarrow.Schema)):
            return NotImplemented  # others may know how to compare themselves, as arrays of NumPy do
        return self.to_pyarrow() == other

    __hash__ = None


class _Values:
    __slots__ = ()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray[Any, Any]:
        """An array of NumPy, as PyArrow makes it: nulls among numbers are NaN, and None elsewhere. Numbers without nulls are
        not copied, and cannot be written to then. Columns of a batch or reader are columns of one dtype."""
        self._refuse_device()
        return require("numpy").array(self._numpy_source(), dtype=dtype, copy=copy)

    def _numpy_source(self):
        return self.to_pyarrow()


class Rows(_Values):
    """Record batches, and readers, which are read to their end."""

    __slots__ = ()

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dicts, by PyArrow."""
        return self.to_pyarrow().to_pylist()

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """A pandas.DataFrame, by PyArrow, whose to_pandas() has the options."""
        return self.to_pyarrow().to_pandas(**options)

    def to_polars(self) -> polars.DataFrame:
        """A polars.DataFrame of the same memory."""
        self._refuse_device()
        return consume(require("polars").DataFrame, self)


class Column(_Values):
    """Arrays."""

    __slots__ = ()

    def to_pylist(self) -> list[Any]:
        """The values, by PyArrow; None for nulls."""
        return self.to_pyarrow().to_pylist()

    def to_pandas(self, **options: Any) -> pandas.Series[Any]:
        """A pandas.Series, by PyArrow, whose to_pandas() has the options."""
        return self.to_pyarrow().to_pandas(**options)

    def to_polars(self) -> polars.Series:
        """A polars.Series of the same memory."""
        self._refuse_device()
        return require("polars").Series(self)

    def __iter__(self) -> Iterator[Any]:
        # A generator: who asks for an iterator takes a TypeError for the want of one.
        yield from map(_as_py, self.to_pyarrow())

    def value(self, which):
        """The value with an index."""
        index = operator.index(which)
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no row {reprlib.repr(which)}: the array has {len(self)}")
        return _as_py(self.to_pyarrow()[index])

    def _numpy_source(self):
        if self.type in _NUMBERS:
            try:
                return require("numpy").from_dlpack(self)  # which needs no PyArrow
            except BufferError:
                pass  # there are nulls
        return self.to_pyarrow()


def as_html(shown: Any) -> str | None:
    """A table of the first values of a batch or array; None where they cannot be had, so that a notebook shows repr()."""
    import html  # of which most programs have no use

    try:
        head = shown.slice(0, _SHOWN_ROWS).to_pyarrow()
    except (ImportError, TypeError, ValueError):
        return None
    names, columns = (head.schema.names, head.columns) if hasattr(head, "columns") else ([""], [head])
    titles = [f"<th>{html.escape(n)}<br><small>{html.escape(str(c.type))}</small></th>" for n, c in zip(names, columns[:_SHOWN_COLUMNS])]
    rows = zip(*([f"<td>{html.escape(reprlib.repr(value))}</td>" for value in c.to_pylist()] for c in columns[:_SHOWN_COLUMNS]))
    lines = "".join(f"<tr>{''.join(line)}</tr>" for line in (titles, *rows))
    return f"<table><caption>{html.escape(repr(shown))}</caption>{lines}</table>"


def column_of(value: Any) -> Any:
    """What is handed over for an argument that is to be a column. It is the argument itself, but for arrays of NumPy that
    DLPack or Arrow cannot describe: numbers that are not in one piece, aligned and in the byte order of the machine are copied, and
    PyArrow makes the column of other dtypes, and of masked arrays, where masked values are nulls."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray):
        return value
    if value.dtype.kind not in "iuf" or value.dtype.itemsize > 8 or isinstance(value, numpy.ma.MaskedArray):
        return require("pyarrow").array(value)
    if value.flags.c_contiguous and value.flags.aligned and value.dtype.isnative:
        return value
    return numpy.array(value, value.dtype.newbyteorder("="), order="C")
