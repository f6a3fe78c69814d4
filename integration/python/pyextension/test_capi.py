"""The functions of Python that a library looks up. One that is absent would be noticed where it is called only."""

import ctypes
import re

import wheels

SOURCE = wheels.ROOT / "pyextension" / "internal" / "capi" / "python.c"
# Functions that got another name in Python 3.13.
RENAMED = {"Py_IsFinalizing": "_Py_IsFinalizing", "PyThreadState_GetUnchecked": "_PyThreadState_UncheckedGet"}


def test_python_has_them():
    names = re.findall(r'\bLOOKUP\(\w+, "(\w+)"\)', SOURCE.read_text())
    assert len(set(names)) > 20 and RENAMED.keys() | RENAMED.values() <= set(names)
    for name in set(names) - set(RENAMED.values()):
        assert hasattr(ctypes.pythonapi, name) or hasattr(ctypes.pythonapi, RENAMED.get(name, name)), name
