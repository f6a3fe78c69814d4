"""The implementations, each a shared library with Archery's entry points that build.sh made."""

import contextlib
import ctypes
import os
import pathlib

import abi
from golib import GoError, ext, stats

FOLDER = pathlib.Path(os.environ["ARCHERY_LIBRARIES"])


class Difference(Exception):
    """What an entry point returned as an error."""


class Implementation:
    """The entry points of one library, which raise what they return as an error."""

    uses_gpu = False  # batches take their way over the memory of a GPU
    imports = True

    def __init__(self, name, library, functions, counter):
        self.name = name
        self._lib = ctypes.CDLL(str(FOLDER / library))
        self._call = {}
        for step, index in {
            "ExportSchemaFromJson": [],
            "ImportSchemaAndCompareToJson": [],
            "ExportBatchFromJson": [ctypes.c_int],
            "ImportBatchAndCompareToJson": [ctypes.c_int],
        }.items():
            function = getattr(self._lib, f"{functions}_{step}")
            function.argtypes = [ctypes.c_char_p, *index, ctypes.c_void_p]
            function.restype = ctypes.c_void_p
            self._call[step] = function
        self._allocated = getattr(self._lib, f"{counter}_BytesAllocated")
        self._allocated.argtypes, self._allocated.restype = [], ctypes.c_int64

    def export_schema(self, path, schema):
        self._run("ExportSchemaFromJson", path, schema)

    def compare_schema(self, path, schema):
        self._run("ImportSchemaAndCompareToJson", path, schema)

    def export_batch(self, path, index, array):
        self._run("ExportBatchFromJson", path, index, array)

    def compare_batch(self, path, index, array):
        self._run("ImportBatchAndCompareToJson", path, index, array)

    def allocated(self):
        """The bytes in use, after what the garbage collector frees."""
        return self._allocated()

    def _run(self, step, path, *arguments):
        error = self._call[step](os.fsencode(path), *arguments[:-1], ctypes.byref(arguments[-1]))
        if error:
            raise Difference(f"{self.name}, {step}: {self._text(error)}")

    def _text(self, error):
        return ctypes.string_at(error).decode(errors="replace")[:2000]

    def cannot_export(self, file):
        """Why this implementation cannot make the batches of a file, or None."""
        return None

    def cannot_compare(self, file, producer):
        """Why this implementation cannot compare the batches of a file that a producer exports, or None."""
        return None

    def moves_offsets(self, file):
        """Reports whether the offsets of an exported batch are others than JSON has."""
        return False


class Nanoarrow(Implementation):
    UNKNOWN = {"binaryview", "utf8view", "listview", "largelistview", "runendencoded"}
    OFFSETS = {"utf8", "largeutf8", "binary", "largebinary", "list", "largelist", "map"}

    def __init__(self):
        super().__init__("nanoarrow", "libnanoarrow.so", "nanoarrow_CDataIntegration", "nanoarrow")

    def cannot_export(self, file):
        types = file.types()
        if types & self.UNKNOWN:
            return f"nanoarrow: its reader of JSON does not know {', '.join(sorted(types & self.UNKNOWN))}"
        if "half" in types:
            return "nanoarrow: its reader of JSON writes float32 into the buffer of float16"
        return None

    def cannot_compare(self, file, producer):
        moved = file.types() & self.OFFSETS
        if moved and any(file.counts) and producer.moves_offsets(file):
            return f"nanoarrow: it compares the offsets of {', '.join(sorted(moved))}, not what they select"
        return self.cannot_export(file)


class Go(Implementation):
    """A library of Go, whose errors are memory of C that the caller frees."""

    def __init__(self, name, library):
        super().__init__(name, library, "ArrowGo", "ArrowGo")
        self._lib.ArrowGo_FreeError.argtypes, self._lib.ArrowGo_FreeError.restype = [ctypes.c_void_p], None
        self._lib.ArrowGo_RunGC.argtypes, self._lib.ArrowGo_RunGC.restype = [], None

    def allocated(self):
        self._lib.ArrowGo_RunGC()
        return super().allocated()

    def _text(self, error):
        try:
            return super()._text(error)
        finally:
            self._lib.ArrowGo_FreeError(error)


class Cdevice(Go):
    """This module, for which arrow-go's library reads JSON. Batches take a route to C structs: as slices, and over the GPU."""

    def __init__(self, name, sliced=False, gpu=False):
        super().__init__(name, "libarrowgo.so")
        self._sliced, self.uses_gpu = sliced, gpu
        self.imports = not sliced  # which is about exports

    def export_schema(self, path, schema):
        with abi.owned(abi.ArrowSchema()) as json:
            super().export_schema(path, json)
            self._call_go("Export", ext.forward_schema, json, schema)

    def compare_schema(self, path, schema):
        with abi.owned(abi.ArrowSchema()) as json:
            super().export_schema(path, json)
            self._call_go("Import", ext.compare_schemas, schema, json)

    def export_batch(self, path, index, array):
        with self._read(path, index) as (batch, schema):
            self._call_go("Export", ext.forward_batch, batch, schema, array, self._sliced, self.uses_gpu)

    def compare_batch(self, path, index, array):
        with self._read(path, index) as (batch, schema):
            self._call_go("Import", ext.compare_batches, array, batch, schema, self.uses_gpu)

    @contextlib.contextmanager
    def _read(self, path, index):
        """A batch of a file, and its schema."""
        with abi.owned(abi.ArrowSchema()) as schema, abi.owned(abi.ArrowArray()) as batch:
            super().export_schema(path, schema)
            super().export_batch(path, index, batch)
            yield batch, schema

    def _call_go(self, step, function, *arguments):
        """Calls a function with the addresses of structs."""
        try:
            function(*(ctypes.addressof(a) if isinstance(a, ctypes.Structure) else a for a in arguments))
        except GoError as e:
            raise Difference(f"{self.name}, {step}: {str(e)[:2000]}") from None

    def allocated(self):
        """0 if nothing is in use, also of arrow-go. An empty batch has no bytes, but is an object of cdevice."""
        ext.gc()
        ext.trim_gpu(0)  # waits for deferred frees, also of a consumer: all of this module share one library
        counts = stats()
        del counts["all_goroutines"]  # those of the GPU stay
        in_use = super().allocated() + sum(counts.values())
        return in_use + sum(ext.read_gpu_stats(0).values())

    def cannot_export(self, file):
        if self._sliced and "union" in file.types():
            return "cdevice: arrow-go's array.Concatenate, which makes what is sliced, does not know unions"
        return None

    def moves_offsets(self, file):
        # A slice begins further in; a copy begins at 0, and has only what is in use.
        return file.spread if self.uses_gpu else self._sliced


IMPLEMENTATIONS = [
    Cdevice("cdevice"),
    Cdevice("cdevice-sliced", sliced=True),
    Cdevice("cdevice-gpu", gpu=True),
    Cdevice("cdevice-gpu-sliced", sliced=True, gpu=True),
    Go("arrow-go", "libarrowgo.so"),
    Go("cdata", "libcdata.so"),
    Nanoarrow(),
]
