"""Calls the Go extension of main.go: python use.py libpyextension.so"""

import ctypes
import os
import sys

import pyarrow as pa

# No Go runtime survives a fork: a child that calls into one hangs, at once or later. So a
# library that a parent has loaded is an error in a forked child. See docs/python.md.
_loaded, _lost = set(), set()
os.register_at_fork(after_in_child=lambda: _lost.update(_loaded))


def _check(path):
    if path in _lost:
        raise RuntimeError(
            f"{path}: loaded before this process was forked, and no Go runtime survives a fork: use "
            'multiprocessing.get_context("spawn") or "forkserver", or load the library in the child only'
        )


class Extension:
    def __init__(self, path):
        self._path = os.path.realpath(path)
        _check(self._path)
        lib = ctypes.CDLL(path)
        _loaded.add(self._path)
        self.call = lib.add_running_total
        self.call.restype = ctypes.c_void_p
        self.call.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t]
        self.free = ctypes.CDLL(None).free
        self.free.argtypes = [ctypes.c_void_p]

    def add_running_total(self, batch, column):
        _check(self._path)
        # struct ArrowDeviceArray and struct ArrowSchema, in and out.
        array, schema = (ctypes.c_int64 * 16)(), (ctypes.c_int64 * 9)()
        out_array, out_schema = (ctypes.c_int64 * 16)(), (ctypes.c_int64 * 9)()
        batch._export_to_c_device(ctypes.addressof(array), ctypes.addressof(schema))
        message = self.call(
            ctypes.addressof(array), ctypes.addressof(schema), column.encode(),
            ctypes.addressof(out_array), ctypes.addressof(out_schema),
        )
        if message:
            text = ctypes.string_at(message).decode()
            self.free(message)
            raise ValueError(text)
        return pa.RecordBatch._import_from_c_device(ctypes.addressof(out_array), ctypes.addressof(out_schema))


def main():
    extension = Extension(sys.argv[1])
    trips = pa.record_batch({"city": ["Oslo", "Lima", "Pune"], "km": [12.5, None, 3.0]})
    more = extension.add_running_total(trips, "km")
    more.validate(full=True)
    assert more.to_pydict() == {"city": ["Oslo", "Lima", "Pune"], "km": [12.5, None, 3.0], "km_total": [12.5, 12.5, 15.5]}
    same = [more["city"].buffers()[i].address == trips["city"].buffers()[i].address for i in (1, 2)]
    assert same == [True, True], "the columns that were there are not copied"
    try:
        extension.add_running_total(trips, "city")
    except ValueError as refused:
        assert str(refused) == 'column "city" is utf8, not double', refused
    del more, trips
    assert pa.total_allocated_bytes() == 0, "nothing is left"
    print("km_total: 12.5, 12.5, 15.5; city was not copied; nothing is left")


if __name__ == "__main__":
    main()
