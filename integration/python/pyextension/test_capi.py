"""The module of C that a library is: Python's functions that it calls, and its own, which the package arrowdevice calls."""

import ctypes
import re
import sys

import pytest

import extension
import wheels
from processes import LOADS, ended

HEADER = wheels.ROOT / "pyextension" / "internal" / "capi" / "python.h"
# Functions that got another name in Python 3.13.
RENAMED = {"Py_IsFinalizing": "_Py_IsFinalizing", "PyThreadState_GetUnchecked": "_PyThreadState_UncheckedGet"}
NEW = {"Py_NewInterpreterFromConfig": (3, 12)}


def test_python_has_them():
    """A library links without them, and one that is absent would be noticed where it is called only."""
    names = set(re.findall(r"^PYTHON\(.*?(\w+), \(", HEADER.read_text(), re.MULTILINE))
    assert len(names) > 80 and RENAMED.keys() | RENAMED.values() <= names
    for name in names - set(RENAMED.values()):
        has = hasattr(ctypes.pythonapi, name) or hasattr(ctypes.pythonapi, RENAMED.get(name, name))
        assert has == (sys.version_info >= NEW.get(name, (3,))), name


# What the programs below have: the module of a library, the same of a copy of it, and modules of the file that were not
# executed, and not bound.
MODULES = f"""{LOADS}
import importlib.machinery, shutil
from arrowdevice import _errors, _library

m = ext._library.module
shutil.copy({extension.PATH!r}, sys.argv[1])
other = arrowdevice.load(sys.argv[1])

def new(execute):
    loader = importlib.machinery.ExtensionFileLoader("arrowdevice_v2", {extension.PATH!r})
    module = loader.create_module(importlib.machinery.ModuleSpec("arrowdevice_v2", loader, origin={extension.PATH!r}))
    if execute:
        loader.exec_module(module)
    return module

BIND = ["path", object, len, {{}}, len, len, len, 0]
batch = ext.echo_batch(BATCH)
consumed = BATCH.schema.__arrow_c_schema__()
pa.Schema._import_from_c_capsule(consumed)

def call_of(library):
    return library._library.module.begin_ask(lambda: None, ".stats")

def ended_call():
    call = call_of(ext)
    m.finish(call)
    return call
"""
DEEP = 300_000
MISUSES = {
    "TypeError": [
        *(f"m.{of}({arguments})" for of in ("function", "beginner") for arguments in ("", "'x'", "'x', [], 1", "5, []", "None, []")),
        *(f"m.function('x', {parameters})" for parameters in ("None", "5", "{}", "'ab'", "[5]", "[None]", "['ab']", "[()]")),
        *(f"m.beginner('x', [{pair}])" for pair in ("('a',)", "('a', 5)", "(5, 'int')", "(None, None)", "('a', 'int', 1)", "['a', 'int']")),
        *("m.function('x', [])(1)", "m.function('x', [('a', 'int')])()", "m.beginner('x', [])()", "m.beginner('x', [])(None)"),
        *("m.ask()", "m.ask(5)", "m.ask(None)", "m.ask(b'.stats')", "m.ask('.slice')", "m.ask('.slice', batch, None, 2)"),
        *("m.ask('.slice', 5, 1, 2)", "m.ask('.next', batch)", "m.ask('.export', batch)", "m.ask('.dlpack', batch, True)"),
        *("m.begin_ask()", "m.begin_ask(print)", "m.begin_ask(None, '.stats')", "m.begin_ask(5, '.stats')", "m.begin_ask(print, 5)"),
        *(f"m.{of}({what})" for of in ("finish", "cancel") for what in ("", "None", "5", "batch._owner", "consumed", "call_of(other)")),
        *("m.count_fields()", "m.count_fields(None)", "m.count_fields(batch._owner)", "m.count_fields(batch.__arrow_c_array__()[1])"),
        *(f"new(True).bind(*BIND[:{i}], {wrong}, *BIND[{i + 1}:])" for i in range(8) for wrong in ("None", "1.5")),
        *("new(True).bind()", "new(True).bind(*BIND[1:])", "new(True).bind(*BIND, 1)", "m.sources(1)"),
    ],
    "ValueError": [
        *(f"m.function('x', [('a', {annotation!r} * {DEEP})])" for annotation in ("list[", "dict[str, ", " | None")),
        *("m.function('\\udc80', [])", "m.beginner('x', [('\\udc80', 'int')])", "m.function('x', [('a', '\\udc80')])", "m.ask('\\udc80')"),
        *("m.finish(ended_call())", "m.cancel(ended_call())", "m.count_fields(consumed)", "m.ask('.export', batch, 'x')"),
        *("m.ask('.slice', batch, -1, 2)", "m.ask('.slice', batch, 0, 1 << 62)", "m.bind(*BIND)"),
        *("m.ask('.to_device', batch, 'cuda:-1')", "m.ask('.to_device', batch, '\\0')"),
    ],
    "OverflowError": ["new(True).bind(*BIND[:7], -1)", "new(True).bind(*BIND[:7], 1 << 64)", "m.ask('.slice', batch, 1 << 64, 2)"],
    "IndexError": ["m.ask('.column', batch, -1)", "m.ask('.column', batch, 1 << 62)"],
    "AttributeError": [
        *(f"new({execute}).{call}" for execute in (True, False) for call in ("ask('.stats')", "function('x', [])", "finish(None)")),
        "new(False).bind(*BIND)",
    ],
}


@pytest.mark.parametrize("error", MISUSES)
def test_wrong_arguments_are_refused(error, tmp_path):
    program = f"""
    for misuse in {MISUSES[error]!r}:
        print(misuse, end=": ", flush=True)
        try:
            eval(misuse)
        except {error}:
            print("refused", flush=True)
        except BaseException as other_error:
            print(repr(other_error), flush=True)
        else:
            print("nothing", flush=True)
    assert m.ask(".library") == other._library.module.ask(".library")
    print(ext.add(1, 2))
    """
    status, out, err = ended(program, tmp_path, head=MODULES.replace("sys.argv[1]", repr(str(tmp_path / "other.so"))))
    assert [line for line in out.splitlines() if not line.endswith(": refused")] == ["3"], err
    assert (status, err) == (0, "")


def test_functions_keep_their_module(tmp_path):
    """Their calls need its state."""
    program = f"""
    import gc
    module = new(True)
    module.bind({extension.PATH!r}, *BIND[1:3], _errors.KINDS, *BIND[4:])
    function = module.function("add", [("a", "int"), ("b", "int")])
    del module
    gc.collect()
    kept = [bytearray(200) for _ in range(1000)]
    try:
        function(1, "x")
    except TypeError as error:
        print(error)
    """
    expected = (0, "add: argument b: int is wanted, not str\n", "")
    assert ended(program, tmp_path, head=MODULES.replace("sys.argv[1]", repr(str(tmp_path / "other.so")))) == expected


def test_annotation_that_is_not_of_the_parameter(tmp_path):
    """Go checks each argument against the type of its parameter."""
    program = """
    values = {"RecordReader": [BATCH], "RecordBatch": BATCH, "Array": BATCH["a"], "Schema": BATCH.schema, "int": 5}
    for annotation, value in values.items():
        taken = []
        for name in ("echo", "echo_reader", "echo_batch", "echo_array", "echo_schema", "echo_texts"):
            try:
                m.function(name, [("value", annotation)])(value)
                taken.append(name)
            except TypeError:
                pass
        print(annotation, *taken)
    """
    status, out, err = ended(program, tmp_path, head=MODULES.replace("sys.argv[1]", repr(str(tmp_path / "other.so"))))
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "RecordReader echo echo_reader",
        "RecordBatch echo echo_reader echo_batch echo_array",
        "Array echo echo_array",
        "Schema echo echo_schema",
        "int echo",
    ]
