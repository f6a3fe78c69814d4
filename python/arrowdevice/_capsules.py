"""PyCapsules of arguments."""

from __future__ import annotations

import ctypes

from ._errors import Refusal


def _function(name, result, *arguments):
    # A function object of this module's own: others may declare other types for the same function.
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_is_valid = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
_get_pointer = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
_get_name = _function("PyCapsule_GetName", ctypes.c_char_p, ctypes.py_object)
_set_name = _function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
_new = _function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
increase = _function("Py_IncRef", None, ctypes.py_object)
decrease = _function("Py_DecRef", None, ctypes.py_object)

# A capsule keeps the pointer to its name, and may outlive this module: these are never freed.
_strdup = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)(("strdup", ctypes.CDLL(None)))
_NAMES = {
    name: _strdup(name.encode())
    for name in (
        "arrow_schema",
        "arrow_array",
        "arrow_device_array",
        "arrow_array_stream",
        "arrow_device_array_stream",
        "dltensor",
        "dltensor_versioned",
        "used_dltensor",
        "used_dltensor_versioned",
    )
}
_CAPSULE = type(_new(_NAMES["arrow_schema"], _NAMES["arrow_schema"], None))


def rename(capsule, name):
    _set_name(capsule, _NAMES[name])


def has_name(capsule, name):
    return bool(_is_valid(capsule, _NAMES[name]))


def pointer(capsule, name, method):
    """The address in a capsule that a method returned."""
    if has_name(capsule, name):
        return _get_pointer(capsule, _NAMES[name])
    if not isinstance(capsule, _CAPSULE):
        raise Refusal(TypeError, f"{method} returned {type(capsule).__name__}, not a capsule {name}")
    named = (_get_name(capsule) or b"").decode(errors="replace")
    used = ": it was consumed before" if named.startswith("used_") else ""
    raise Refusal(ValueError, f"{method} returned a capsule with the name {named!r}, not {name!r}{used}")


def pointers(capsules, names, method):
    """The addresses in a tuple of capsules that a method returned."""
    if not isinstance(capsules, (tuple, list)) or len(capsules) != len(names):
        raise Refusal(TypeError, f"{method} returned {type(capsules).__name__}, not {len(names)} capsules")
    return [pointer(capsule, name, method) for capsule, name in zip(capsules, names)]
