"""A loaded Go library: its C functions, and calls of them."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import weakref

from . import _errors, _sources
from ._values import Failure, Reply, encode, encode_address, encode_str, form_head, list_head

_VERSION = 1

# A slice of waiting, after which Python's signal handlers run: in the main thread only.
_MAIN_SLICE, _OTHER_SLICE = 50_000_000, 10_000_000_000

_NOT_STARTED = (1 << 64) - 1
_PATIENCE_AT_EXIT = 2.0  # seconds until functions that ignore the end of their context are left alone

_FORKED = (
    "{}: loaded before this process was forked, and no Go runtime survives a fork: use "
    'multiprocessing.get_context("spawn"), or "forkserver" after multiprocessing.set_forkserver_preload([]), or load the '
    "library in the child only"
)


class _Out(ctypes.Structure):
    """Where a call puts its reply: NULL and the number of the call while it is in progress."""

    _fields_ = [("memory", ctypes.c_void_p), ("size", ctypes.c_uint64)]


class Call:
    """A call of a library. An exception of a signal handler can come between any two instructions: abandon()
    ends the call in every state, and its caller calls it for every exception until it has the result."""

    __slots__ = ("_library", "_out", "_memory", "_size", "_reply", "_origins", "__weakref__")

    def __init__(self, library, origins=()):
        self._library, self._origins, self._reply = library, origins, None
        self._out = _Out(None, _NOT_STARTED)
        self._memory, self._size = ctypes.byref(self._out), ctypes.byref(self._out, _Out.size.offset)

    # The number is read from memory: the result of a C function may never be assigned.

    @property
    def started(self):
        """Reports whether Go has taken the request."""
        return self._out.size != _NOT_STARTED

    @property
    def number(self):
        """The number while the call is in progress, else 0."""
        return 0 if self._out.memory or not self.started else self._out.size

    @property
    def pipes(self):
        """The pipes of the library, by event loop."""
        return self._library.pipes

    def start(self, request, wait):
        """Reports whether the call has ended."""
        library = self._library
        library.check()
        library.running.add(self)
        if library.functions.call(request, len(request), wait, self._memory, self._size) < 0:
            raise RuntimeError(_FORKED.format(library.path))
        return bool(self._out.memory)

    def wait(self, wait):
        """Reports whether the call has ended."""
        if self._library.functions.wait(self.number, wait, self._memory, self._size) < 0:
            raise RuntimeError(_FORKED.format(self._library.path))
        return bool(self._out.memory)

    def notify(self, descriptor):
        self._library.functions.notify(self.number, descriptor)

    def result(self):
        """The decoded value, or a Failure."""
        library = self._library
        self._reply = ctypes.string_at(self._out.memory, self._out.size)
        library.running.discard(self)
        self._free()
        return Reply(self._reply, lambda reference: library.wrap(library, reference, self._origins)).decode()

    def _free(self):
        memory, self._out.memory, self._out.size = self._out.memory, None, 0
        self._library.functions.free(memory)

    def abandon(self):
        """Ends the call, and drops its result."""
        library = self._library
        library.running.discard(self)
        if self.number:
            library.functions.cancel(self.number)
        elif self._out.memory:
            self._reply = self._reply or ctypes.string_at(self._out.memory, self._out.size)
            self._free()
        if self._reply is not None:  # objects that are released already are left alone
            Reply(self._reply, lambda reference: library.release(reference.handle)).decode()


class _Export(Call):
    """A call whose reply has the addresses of C structs, and whose result is a tuple of capsules with their names. The
    reply owns the structs until a single step of C moves them to capsules."""

    __slots__ = ("_names",)

    def __init__(self, library, names, origins=()):
        super().__init__(library, origins)
        self._names = [name.encode() for name in names]

    def result(self):
        if not self._succeeded():
            return super().result()
        capsules = self._take()
        self._library.running.discard(self)
        return capsules

    def abandon(self):
        if self._succeeded():
            self._take()
        super().abandon()

    def _succeeded(self):
        return bool(self._out.memory) and ctypes.string_at(self._out.memory, 1) == b"R"

    def _take(self):
        return self._library.functions.take_capsules(self._memory, self._size, *(*self._names, None)[:2])


class _Functions:
    """The C functions."""

    def __init__(self, path, library):
        out = [ctypes.c_void_p, ctypes.c_void_p]
        for name, result, arguments in (  # without the GIL
            ("call", ctypes.c_int64, [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int64, *out]),
            ("wait", ctypes.c_int64, [ctypes.c_int64, ctypes.c_int64, *out]),
            ("cancel", None, [ctypes.c_int64]),
            ("notify", None, [ctypes.c_int64, ctypes.c_int32]),
            ("release", None, [ctypes.c_uint64]),
            ("free", None, [ctypes.c_void_p]),
        ):
            setattr(self, name, _find(path, library, name, ctypes.CFUNCTYPE(result, *arguments)))
        for name, result, arguments in (  # with it
            ("take_capsules", ctypes.py_object, [*out, ctypes.c_char_p, ctypes.c_char_p]),
            ("own", ctypes.py_object, [ctypes.c_uint64]),
            ("open_source", None, out),
        ):
            setattr(self, name, _find(path, library, name, ctypes.PYFUNCTYPE(result, *arguments)))


def _find(path, library, name, prototype):
    try:
        return prototype((f"arrowdevice_v{_VERSION}_{name}", library))
    except AttributeError:
        raise ImportError(f"{path}: {_foreign(library)}", path=path) from None


def _foreign(library):
    """Why a shared library is not one of this version."""
    for version in range(1, 10):
        if version != _VERSION and hasattr(library, f"arrowdevice_v{version}_call"):
            return f"has version {version} of the interface to Python, and this arrowdevice knows version {_VERSION}"
    return "no library with functions for Python: its main package must import pyextension"


class Library:
    """A loaded library. wrap makes an object of a Reference in a reply."""

    def __init__(self, path, wrap):
        self.path, self.wrap, self._pid = path, wrap, os.getpid()
        try:
            library = ctypes.CDLL(path)
        except OSError as e:
            raise ImportError(f"{path}: cannot be loaded: {e}", path=path) from e
        self.functions = _Functions(path, library)
        self.running, self.objects, self.pipes = set(), set(), {}
        self._facts = self.ask(".library", threading.main_thread().ident)
        if self._facts.get("abi") != _VERSION:
            raise ImportError(
                f"{path}: has version {self._facts.get('abi')} of the interface to Python, and this arrowdevice knows "
                f"version {_VERSION}",
                path=path,
            )

    @property
    def version(self):
        """The version of the Go module."""
        return self._facts.get("version", "")

    @property
    def module(self):
        """The path of the Go package."""
        return self._facts.get("module", "")

    def here(self, _getpid=os.getpid):
        """Reports whether this process is the one that loaded the library."""
        return _getpid() == self._pid

    def check(self):
        """Raises RuntimeError in a child that was forked after the library was loaded."""
        if not self.here():
            raise RuntimeError(_FORKED.format(self.path))

    def ask(self, name, *arguments, origins=()):
        """The result of a built-in function. Arguments are encoded by their types; objects have an
        encoded()."""
        call = Call(self, origins)
        try:
            return self.value(self.run(call, built_in(name, arguments)), origins)
        except BaseException:
            call.abandon()
            raise

    def export(self, names, name, *arguments, origins=()):
        """Capsules with some names, of the structs that a built-in function returns."""
        call = _Export(self, names, origins)
        try:
            return self.value(self.run(call, built_in(name, arguments)), origins)
        except BaseException:
            call.abandon()
            raise

    def run(self, call, request):
        """The value of a call, or a Failure."""
        in_main = threading.get_ident() == threading.main_thread().ident
        wait = _MAIN_SLICE if in_main else _OTHER_SLICE
        ended = call.start(request, wait)
        while not ended:
            ended = call.wait(wait)
        return call.result()

    def value(self, value, origins=()):
        """A value that is no Failure, which is raised."""
        if type(value) is Failure:
            raise self.error(value, origins)
        return value

    def error(self, failure, origins):
        """The exception of a failure: that of a source in Python, if it is behind the failure."""
        return _sources.original(origins, failure.text) or _errors.of_reply(*failure)

    def release(self, handle):
        """Drops an object that nothing owns."""
        if self.here():
            self.functions.release(handle)

    def adopt(self, thing):
        """Closes an object at exit, unless it has ended by then. No Python code runs when it ends."""
        self.objects.add(weakref.ref(thing, self.objects.discard))

    def close(self):
        """Cancels the calls in progress and releases all objects: at exit, while callbacks can run."""
        for call in list(self.running):
            if call.number:
                self.functions.cancel(call.number)
        for reference in list(self.objects):
            thing = reference()
            if thing is not None:
                thing.close()


def built_in(name, arguments):
    """The request for a built-in function."""
    try:
        encoded = [a.encoded() if hasattr(a, "encoded") else encode(a) for a in arguments]
    except _errors.Refusal as refusal:
        raise refusal.kind(refusal.text) from None
    return b"".join([list_head(1 + len(encoded)), encode_str(name), *encoded])


def encode_handle(handle):
    """An own object in a request."""
    return form_head(1) + encode_address(handle)


_libraries, _lock = {}, threading.Lock()


def _in_main_interpreter():
    current, main = (ctypes.PYFUNCTYPE(ctypes.c_void_p)((f"PyInterpreterState_{n}", ctypes.pythonapi)) for n in ("Get", "Main"))
    return current() == main()


def load(path, wrap):
    """The library at a path: the same one each time."""
    path = os.path.realpath(os.fspath(path))
    if not _in_main_interpreter():  # callbacks on Go's threads run in the main one
        raise ImportError(f"{path}: cannot be loaded in a subinterpreter", path=path)
    with _lock:
        library = _libraries.get(path)
        if library is None:
            library = _libraries[path] = Library(path, wrap)
    library.check()
    return library


@atexit.register
def _close_all():
    # Sources in Python are called from Go's threads: not after the interpreter has ended.
    libraries = [library for library in list(_libraries.values()) if library.here()]
    for library in libraries:
        library.close()
    deadline = time.monotonic() + _PATIENCE_AT_EXIT
    while libraries and _sources.alive() and time.monotonic() < deadline:
        time.sleep(0.002)
