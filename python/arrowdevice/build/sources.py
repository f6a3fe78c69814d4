"""Writes the Python sources of a wheel: the module with the functions of a library, and its types."""

import math
import re

# The classes of the package arrowdevice that modules show, beside their functions.
CLASSES = ("Array", "Cancelled", "Error", "Panic", "RecordBatch", "RecordReader", "Schema")


def files(library, version, doc, functions):
    """The files of the module. functions is what the library answers to .functions."""
    names = sorted(function["name"] for function in functions)
    classes = [name for name in CLASSES if name not in names]
    return {
        "__init__.py": _module(library, version, doc, names, classes),
        "__init__.pyi": _stubs(doc, functions, classes),
        "py.typed": "",
    }


def _docstring(text, indent=""):
    """A literal, for any text."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    if not all(line.isprintable() for line in lines) or re.search(r'"""|\\|"$', "\n".join(lines)):
        return indent + repr("\n".join(lines))
    text = "\n".join(indent + line if line else "" for line in lines).strip()
    return f'{indent}"""{text}' + (f"\n{indent}" if len(lines) > 1 else "") + '"""'


def _module(library, version, doc, names, classes):
    lines = [
        _docstring(doc or "Functions written in Go."),
        "",
        "from pathlib import Path as _Path",
        "",
        "from . import _arrowdevice",
        *(f"from ._arrowdevice import {name}" for name in classes),
        "",
        f"_arrowdevice._publish(__name__, {classes!r})",
        f'_extension = _arrowdevice.load(_Path(__file__).with_name("{library}"))',
        *(f"{name} = _extension.{name}" for name in names),
        "",
        f"__all__ = {sorted([*names, *classes])!r}",
        f"__version__ = {version!r}",
        "",
        "",
        "def __dir__():",
        "    return __all__",
    ]
    return "\n".join(lines) + "\n"


# What an argument of a type may be. Only the names of the protocols count, and that they need no argument.
_ARGUMENTS = """\
class _DeviceStream(Protocol):
    def __arrow_c_device_stream__(self) -> object: ...

class _DeviceArray(Protocol):
    def __arrow_c_device_array__(self) -> object: ...

class _Stream(Protocol):
    def __arrow_c_stream__(self) -> object: ...

class _Array(Protocol):
    def __arrow_c_array__(self) -> object: ...

class _DLPack(Protocol):
    def __dlpack__(self) -> object: ...

class _CUDAArray(Protocol):
    @property
    def __cuda_array_interface__(self) -> Any: ...

class _Schema(Protocol):
    def __arrow_c_schema__(self) -> object: ...

_AnyBatch = Union[_DeviceArray, _DeviceStream, _Array, _Stream]
_AnyReader = Union[_AnyBatch, Iterable[_AnyBatch], Callable[[], Optional[_AnyBatch]]]
_AnyArray = Union[_AnyBatch, _DLPack, _CUDAArray]
_AnySchema = _Schema
_AnyBytes = Union[bytes, bytearray, memoryview]
"""
_OF_ARGUMENTS = {
    "RecordReader": "_AnyReader",
    "RecordBatch": "_AnyBatch",
    "Array": "_AnyArray",
    "Schema": "_AnySchema",
    "bytes": "_AnyBytes",
    "list": "Sequence",
    "dict": "Mapping",
}

_TYPES = {"bool", "bytearray", "bytes", "dict", "float", "int", "list", "memoryview", "object", "property", "str", "tuple"}


def _stubs(doc, functions, classes):
    hidden = {function["name"] for function in functions} & _TYPES

    def qualify(text):
        """With the types that functions hide."""
        return re.sub(r"\w+", lambda word: f"builtins.{word[0]}" if word[0] in hidden else word[0], text)

    lines = [
        *([_docstring(doc), ""] if doc else []),
        *(["import builtins"] if hidden else []),
        "from collections.abc import Callable, Iterable, Mapping, Sequence",
        "from typing import Any, Optional, Protocol, Union, type_check_only",
        "",
        *(f"from ._arrowdevice import {name} as {name}" for name in classes),
        "",
        "__version__: str",
        "",
        qualify(_ARGUMENTS),
    ]
    for function in sorted(functions, key=lambda function: function["name"]):
        lines += [*_stub(function, qualify), ""]
    return "\n".join(lines)


def _stub(function, qualify):
    """A function, and its attribute aio, which a def cannot have."""
    name = function["name"]
    # No parameter is called _self: their names begin with letters.
    parameters = ", ".join(["_self", *(_parameter(p, qualify) for p in function["params"])])
    signature = f"({parameters}) -> {qualify(function['returns'])}:"
    doc = _docstring(function["doc"], "        ") if function["doc"] else "        ..."
    return [
        "@type_check_only",
        f"class _{name}_function:",
        f"    def __call__{signature}",
        doc,
        f"    async def aio{signature}",
        doc,
        "",
        f"{name}: _{name}_function",
    ]


def _parameter(parameter, qualify):
    kind = re.sub(r"\w+", lambda word: _OF_ARGUMENTS.get(word[0], word[0]), parameter["type"])
    return f"{parameter['name']}: {qualify(kind)}" + (_default(parameter["default"]) if "default" in parameter else "")


def _default(value):
    return " = ..." if isinstance(value, float) and not math.isfinite(value) else f" = {value!r}"
