"""Functions of Go as functions of Python: signatures, values, errors."""

import errno
import inspect
import os
import re
import shutil
import traceback

import numpy
import pytest

import arrowdevice
import extension


def test_library_is_like_a_module(ext):
    assert ext.__name__ == "golib"
    assert ext.__file__ == os.path.realpath(extension.PATH)
    assert repr(ext) == f"<Go extension 'golib' from '{ext.__file__}'>"
    assert {"add", "echo", "__name__", "__doc__"} <= set(dir(ext))
    assert "add" in ext.__all__
    with pytest.raises(AttributeError, match="golib has no function 'ad'; it has .*add, "):
        ext.ad


def test_same_path_is_the_same_library(ext, tmp_path):
    link = tmp_path / "link.so"
    link.symlink_to(extension.PATH)
    assert arrowdevice.load(extension.PATH) is ext
    assert arrowdevice.load(os.path.relpath(extension.PATH)) is ext
    assert arrowdevice.load(link) is ext


def test_functions_have_signatures(ext):
    assert str(inspect.signature(ext.add)) == "(a: 'int', b: 'int' = 1) -> 'int'"
    assert ext.add.__doc__ == "Adds two integers."
    assert ext.add.__annotations__ == {"a": "int", "b": "int", "return": "int"}
    assert (ext.add.__name__, ext.add.__qualname__, ext.add.__module__) == ("add", "add", "golib")
    assert ext.nothing.__doc__ is None
    assert str(inspect.signature(ext.echo_small)) == "(small: 'int', unsigned: 'int') -> 'tuple[int, int]'"
    assert str(inspect.signature(ext.echo_reader)) == "(stream: 'RecordReader') -> 'RecordReader'"
    assert inspect.iscoroutinefunction(ext.add.aio)
    assert inspect.signature(ext.add.aio) == inspect.signature(ext.add)


def test_arguments_are_bound_as_by_any_function(ext):
    assert ext.add(1, 2) == ext.add(1, b=2) == ext.add(b=2, a=1) == 3
    assert ext.add(1) == 2
    assert ext.nothing() is None


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda ext: ext.add(), "add() missing 1 required positional argument: 'a'"),
        (lambda ext: ext.add(1, 2, 3), "add() takes from 1 to 2 positional arguments but 3 were given"),
        (lambda ext: ext.add(1, c=2), "add() got an unexpected keyword argument 'c'"),
        (lambda ext: ext.add(1, a=2), "add() got multiple values for argument 'a'"),
        (lambda ext: ext.add("1"), "add: argument a: int is wanted, not str"),
        (lambda ext: ext.echo_scalars("", numpy.True_, True), "echo_scalars: argument number: float is wanted, not bool"),
        (lambda ext: ext.echo_scalars("", numpy.arange(3), True), "echo_scalars: argument number: float is wanted, not ndarray"),
        (lambda ext: ext.echo_scalars(numpy.arange(3), 1, True), "echo_scalars: argument text: unsupported type ndarray"),
        (lambda ext: ext.add(numpy.arange(3)), "add: argument a: unsupported type ndarray"),
        (lambda ext: ext.add(object()), "add: argument a: unsupported type object"),
        (lambda ext: ext.echo_texts("abc"), "echo_texts: argument texts: list is wanted, not str"),
        (lambda ext: ext.echo({1: 2}), "echo: argument value: keys of a dict must be str, not int"),
        (lambda ext: ext.echo([1, {"x": {2}}]), "echo: argument value[1]['x']: unsupported type set"),
    ],
)
def test_wrong_arguments_are_type_errors(ext, call, text):
    with pytest.raises(TypeError) as raised:
        call(ext)
    assert str(raised.value) == text
    assert traceback.extract_tb(raised.tb)[-1].name in ("<lambda>", text.partition(":")[0])


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda ext: ext.echo_small(128, 0), "echo_small: argument small: 128 does not fit into int8"),
        (lambda ext: ext.add(1 << 64), f"add: argument a: {1 << 64} does not fit into 64 bits"),
        (lambda ext: ext.add(1 << 20000), "add: argument a: an int of 20001 bits does not fit into 64 bits"),
        (lambda ext: ext.add(-(1 << 63) - 1), f"add: argument a: {-(1 << 63) - 1} does not fit into 64 bits"),
    ],
)
def test_integers_overflow(ext, call, text):
    with pytest.raises(OverflowError) as raised:
        call(ext)
    assert str(raised.value) == text


def test_array_without_items_is_no_stream(ext):
    with pytest.raises(TypeError, match="count: argument stream: RecordReader is wanted, not ndarray"):
        ext.count(numpy.array(5))


VALUES = [
    None, True, False, 0, -1, (1 << 63) - 1, -(1 << 63), 0.5, float("inf"), "", "größer \0 😀", b"", b"\0\xff" * 1000,
    [], [1, [2, [None]]], {}, {"a": {"b": [b"c"]}, "": 1},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back(ext, value):
    got = ext.echo(value)
    assert got == value
    assert type(got) is type(value)


def test_values_that_are_like_others(ext):
    assert ext.echo((1, "a")) == [1, "a"]
    assert ext.echo([bytearray(b"a"), memoryview(b"bc")]) == [b"a", b"bc"]
    assert ext.echo([numpy.int8(1), numpy.uint64(2), numpy.bool_(True), numpy.float32(0.5), numpy.str_("x")]) == [1, 2, True, 0.5, "x"]
    assert ext.add(numpy.int64(1), numpy.uint8(2)) == 3
    assert ext.echo_small(-128, (1 << 64) - 1) == (-128, (1 << 64) - 1)
    assert ext.echo_scalars("x", 1, numpy.bool_(False)) == ("x", 1.0, False)
    assert ext.echo_scalars("x", numpy.float32(0.5), True) == ("x", 0.5, True)


def test_text_that_is_not_utf8(ext):
    with pytest.raises(ValueError, match=r"echo_texts: argument texts\[0\]: cannot be encoded as UTF-8"):
        ext.echo_texts(["\ud800"])


@pytest.mark.parametrize(
    "kind, error, text, number",
    [
        ("value", ValueError, "invalid: a value", 0),
        ("type", TypeError, "type error: a type", 0),
        ("index", IndexError, "index error: an index", 0),
        ("key", KeyError, "key error: a key", 0),
        ("unsupported", NotImplementedError, "not implemented: unsupported", 0),
        ("absent", FileNotFoundError, "file does not exist: absent", errno.ENOENT),
        ("forbidden", PermissionError, "permission denied: forbidden", errno.EACCES),
        ("refused", ConnectionRefusedError, "dial: connection refused", errno.ECONNREFUSED),
        ("late", TimeoutError, "late: context deadline exceeded", 0),
        ("cancelled", arrowdevice.Cancelled, "cancelled: context canceled", 0),
        ("other", arrowdevice.Error, "something else, größer", 0),
    ],
)
def test_go_errors_are_exceptions(ext, kind, error, text, number):
    """Also those of readers that failed before they had a schema."""
    for function in ("fail", "failed_reader", "failed_host_reader"):
        with pytest.raises(error) as raised:
            getattr(ext, function)(kind)
        assert type(raised.value) is error
        text_of_it = text if function == "fail" else f"{function}: result: {text}"
        assert raised.value.args == ((number, text_of_it) if number else (text_of_it,))
        assert [f.name for f in traceback.extract_tb(raised.tb)] == ["test_go_errors_are_exceptions", function]
        assert raised.value.__cause__ is raised.value.__context__ is None


def test_panics_are_exceptions(ext):
    with pytest.raises(arrowdevice.Panic, match="panics: panic: out of cheese\n\ngoroutine [^$]*extension.go"):
        ext.panics()
    assert issubclass(arrowdevice.Panic, arrowdevice.Error)


@pytest.mark.parametrize("read", [next, lambda reader: reader.read_all(), extension.ext.count], ids=["next", "read_all", "function"])
@pytest.mark.parametrize("iterator", [False, True], ids=["function", "iterator"])
@pytest.mark.parametrize("kind", ["panic", "error", "goexit"])
def test_panics_of_readers_are_exceptions(ext, kind, iterator, read):
    """Those of the code that makes the batches, when they are read."""
    text = "ended its goroutine" if kind == "goexit" else "out of cheese"
    with ext.troubled(kind, iterator) as reader, pytest.raises(arrowdevice.Panic, match=text) as raised:
        read(reader)
    if kind != "goexit":  # a goroutine that has ended has no stack
        assert re.search(r"\n\ngoroutine [^$]*trouble.go", str(raised.value))


def test_no_library(tmp_path):
    with pytest.raises(ImportError, match=r"/nothing.so: cannot be loaded: .*No such file") as raised:
        arrowdevice.load(tmp_path / "nothing.so")
    assert raised.value.path == str(tmp_path / "nothing.so")
    text = tmp_path / "text.so"
    text.write_text("text")
    with pytest.raises(ImportError, match="text.so: cannot be loaded: "):
        arrowdevice.load(text)
    copied = tmp_path / "libgil.so"
    shutil.copy(os.environ["GILPRODUCER"], copied)
    with pytest.raises(ImportError, match="no library with functions for Python: its main package must import pyextension"):
        arrowdevice.load(copied)
