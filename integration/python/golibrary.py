"""The functions of the Go library: libgolib.so, which GOLIB names."""

import ctypes
import json
import os
import pathlib


class GoError(Exception):
    """An error, or a panic, of the Go library."""


def _library_path():
    default = pathlib.Path(__file__).resolve().parents[2] / "build" / "libgolib.so"
    return os.environ.get("GOLIB", str(default))


_lib = ctypes.CDLL(_library_path())
_lib.golib_free.argtypes = [ctypes.c_void_p]
_lib.golib_free.restype = None
_lib.golib_gc.restype = None
_lib.golib_new_struct.argtypes = [ctypes.c_size_t]
_lib.golib_new_struct.restype = ctypes.c_void_p
_lib.golib_free_struct.argtypes = [ctypes.c_void_p]
_lib.golib_free_struct.restype = None

_handle, _address, _text = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_char_p
_device_type, _device_id = ctypes.c_int32, ctypes.c_int64
_out_handle, _out_text = ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_void_p)

for _name, _arguments in {
    "golib_cases": [_out_text],
    "golib_crash_output": [ctypes.c_int],
    "golib_crash": [_text],
    "golib_make_array": [_text, _text, _out_handle],
    "golib_make_bare_array": [_text, _out_handle],
    "golib_make_batch": [_text, _text, _out_handle],
    "golib_make_annotated_batch": [_out_handle],
    "golib_make_demo_batch": [ctypes.c_int64, _out_handle],
    "golib_import_array": [_address, _address, ctypes.c_int, ctypes.c_int, _out_handle],
    "golib_import_batch": [_address, _address, ctypes.c_int, ctypes.c_int, _out_handle],
    "golib_export": [_handle, _address, _address, ctypes.c_int],
    "golib_export_schema": [_handle, _address],
    "golib_release": [_handle],
    "golib_release_on_other_thread": [_handle],
    "golib_slice": [_handle, ctypes.c_int64, ctypes.c_int64, _out_handle],
    "golib_column": [_handle, ctypes.c_int, _out_handle],
    "golib_select": [_handle, ctypes.POINTER(ctypes.c_int), ctypes.c_int, _out_handle],
    "golib_copy_to_host": [_handle, _out_handle],
    "golib_describe": [_handle, _out_text],
    "golib_values": [_handle, _out_text],
    "golib_buffers": [_handle, _out_text],
    "golib_compare": [_handle, _handle, _out_text],
    "golib_stats": [_out_text],
    "golib_gpu_name": [_device_id, _out_text],
    "golib_gpu_trim": [_device_id],
    "golib_gpu_stats": [_device_id, _out_text],
    "golib_make_pinned_array": [_text, _text, _device_id, _out_handle],
    "golib_copy_to": [_handle, _device_type, _device_id, _address, _out_handle],
    "golib_ready": [_handle, _out_text],
    "golib_wait": [_handle],
    "golib_wait_on": [_handle, _address],
    "golib_used_on": [_handle, _address],
    "golib_export_after": [_handle, _address, _address, _address],
    "golib_make_stream": [_text, _handle, _out_handle, ctypes.c_int, ctypes.c_int64, _text, _text, _out_handle],
    "golib_import_stream": [_address, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int, _out_handle],
    "golib_import_plain_array": [_address, _address, ctypes.c_int, ctypes.c_int, _out_handle],
    "golib_import_plain_batch": [_address, _address, ctypes.c_int, ctypes.c_int, _out_handle],
    "golib_import_plain_stream": [_address, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int, _out_handle],
    "golib_export_plain": [_handle, _address, _address],
    "golib_next": [_handle, _out_handle],
    "golib_export_stream": [_handle, _address, ctypes.c_int],
    "golib_export_plain_stream": [_handle, _address],
    "golib_copy_stream": [_handle, _device_type, _device_id, _address, _out_handle],
    "golib_host_stream": [_handle, _out_handle],
    "golib_export_dlpack": [_handle, ctypes.c_int, ctypes.c_int64, ctypes.c_int, _out_handle],
    "golib_import_dlpack": [_address, ctypes.c_int, ctypes.c_int, _out_handle],
}.items():
    _function = getattr(_lib, _name)
    _function.argtypes = _arguments
    _function.restype = ctypes.c_void_p


def _take_text(address):
    try:
        return ctypes.string_at(address).decode()
    finally:
        _lib.golib_free(address)


def _call(name, *arguments):
    error = getattr(_lib, "golib_" + name)(*arguments)
    if error:
        raise GoError(_take_text(error))


def _create(name, *arguments):
    handle = ctypes.c_uint64()
    _call(name, *arguments, ctypes.byref(handle))
    return handle.value


def _ask(name, *arguments):
    text = ctypes.c_void_p()
    _call(name, *arguments, ctypes.byref(text))
    return json.loads(_take_text(text.value))
