"""The consumers. Each has take(value, table, stream), which imports an array or a batch of Go's as work on a stream, without
waiting for it, and returns an object with

    faults()            what is wrong with the array as the consumer sees it
    host(), device()    the array as the consumer exports it there, for Go; host may return None
    release()

Objects of libcudf have structure() as well: the type that libcudf takes the array for, and what is wrong with its structure,
without work on the device. The consumers in Python have slice(value, stop): rows 1 to stop of a table, which then has offsets.
"""

import ctypes

import abi
import capsules
import driver


class Handed:
    """The structs of an object, as a consumer is given them, and a second schema for one that makes an array of them."""

    def __init__(self, value):
        self._second, self._capsules = value.__arrow_c_schema__(), value.__arrow_c_device_array__()
        schema, array = self._capsules
        self.schema = abi.ArrowSchema.from_address(abi.capsule_pointer(schema, "arrow_schema"))
        self.array = abi.ArrowDeviceArray.from_address(abi.capsule_pointer(array, "arrow_device_array"))

    def __arrow_c_schema__(self):
        return self._second

    def __arrow_c_device_array__(self, requested_schema=None, **_):
        return self._capsules


class Taken:
    def __init__(self, exported):
        self._exported = exported

    def faults(self):
        return []

    def host(self):
        return None

    def device(self):
        return self._exported

    def release(self):
        self._exported = None


class Passing:
    """Passes the structs on as they are."""

    def take(self, value, table, stream):
        return Taken(Handed(value))

    def slice(self, value, stop):
        return Handed(value[1:stop])


class OnHost:
    """Offers the host protocol of an object alone, so that it copies to the host."""

    def __init__(self, value):
        self.__arrow_c_array__ = value.__arrow_c_array__


class TakenByPylibcudf(Taken):
    def host(self):
        return OnHost(self._exported)


class Pylibcudf:
    def __init__(self):
        import pylibcudf

        self.module = pylibcudf

    def take(self, value, table, stream):
        return TakenByPylibcudf((self.module.Table if table else self.module.Column).from_arrow(value))

    def slice(self, value, stop):
        return self.module.copying.slice(self.module.Table.from_arrow(value), [1, stop])[0]


class Libcudf:
    """A consumer of cudf.cc: view or owning."""

    def __init__(self, kind, path):
        self._kind = kind.encode()
        self._library = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
        self._library.kit_import.restype = ctypes.c_void_p
        self._library.kit_text.restype = ctypes.c_char_p

    def text(self):
        return self._library.kit_text().decode(errors="replace")

    def take(self, value, table, stream):
        handed = Handed(value)
        pointers = ctypes.byref(handed.array), ctypes.byref(handed.schema)
        imported = self._library.kit_import(self._kind, *pointers, table, driver.handle(stream))
        if not imported:
            raise RuntimeError(self.text())
        return TakenByLibcudf(self, ctypes.c_void_p(imported), stream)

    def call(self, function, *arguments):
        """The text that a function leaves."""
        failed = getattr(self._library, function)(*arguments)
        if failed:
            raise RuntimeError(self.text())
        return self.text()


class TakenByLibcudf:
    def __init__(self, library, imported, stream):
        self._library, self._imported, self._stream = library, imported, stream

    def faults(self):
        return self._library.call("kit_faults", self._imported).splitlines()

    def structure(self):
        kind, *faults = self._library.call("kit_structure", self._imported).split("\n")
        return kind, [fault for fault in faults if fault]

    def _export(self, device):
        out = Exported()
        self._library.call("kit_export", self._imported, device, ctypes.byref(out.array), ctypes.byref(out.schema))
        return out

    def host(self):
        out = self._export(False)
        driver.call("cuStreamSynchronize", driver.handle(self._stream))
        return out

    def device(self):
        return self._export(True)

    def release(self):
        self._library.call("kit_release", self._imported)


class Exported:
    """Structs that libcudf has filled, for Go, which moves the array out of its capsule and releases the schema."""

    def __init__(self):
        self.array, self.schema = abi.ArrowDeviceArray(), abi.ArrowSchema()

    def __arrow_c_device_array__(self, requested_schema=None, **_):
        return abi.new_capsule(ctypes.addressof(self.schema), "arrow_schema", None), capsules.device_array(self.array)
