"""Python's functions that a library calls. It links without them, and one that is absent would be noticed where it is called only."""

import ctypes
import re

import wheels

HEADER = wheels.ROOT / "pyextension" / "internal" / "capi" / "python.h"
# Functions that got another name in Python 3.13.
RENAMED = {"Py_IsFinalizing": "_Py_IsFinalizing", "PyThreadState_GetUnchecked": "_PyThreadState_UncheckedGet"}


def test_python_has_them():
    names = set(re.findall(r"^PYTHON\(.*?(\w+), \(", HEADER.read_text(), re.MULTILINE))
    assert len(names) > 80 and RENAMED.keys() | RENAMED.values() <= names
    for name in names - set(RENAMED.values()):
        assert hasattr(ctypes.pythonapi, name) or hasattr(ctypes.pythonapi, RENAMED.get(name, name)), name
