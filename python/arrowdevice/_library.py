"""A loaded Go library. It is a module of C, which converts arguments and results; a library here is what is known of it."""

from __future__ import annotations

import atexit
import importlib.machinery
import os
import threading
import time

from . import _errors, _host

# The name of the module, with the version of what it offers: pyextension/internal/capi/module.c.
_MODULE = "arrowdevice_v2"

_PATIENCE_AT_EXIT = 2.0  # seconds until functions that ignore the end of their context are left alone


class Library:
    """A loaded library. wrap makes an object of a kind, an owner, the type and number of its device, and a number of rows."""

    def __init__(self, path, object_type, wrap):
        self.path = path
        self._pid = os.getpid()
        self.module = _import(path)
        main = threading.main_thread().ident
        self.module.bind(path, object_type, wrap(self), _errors.KINDS, _errors.annotate, _errors.is_of_handler, _host.column_of, main)
        # The result of a built-in function.
        self.ask = self.module.ask
        self.facts = self.ask(".library")

    def here(self):
        """Reports whether this process is the one that loaded the library."""
        return os.getpid() == self._pid

    async def wait(self, begin, *arguments):
        """The result of a call, which begin(ended, *arguments) begins."""
        from asyncio import get_running_loop

        loop = get_running_loop()
        future = loop.create_future()

        def end():
            if not future.done():
                future.set_result(None)

        def ended():  # on a thread of Go
            try:
                loop.call_soon_threadsafe(end)
            except RuntimeError:  # the loop was closed: the call is dropped with its coroutine
                pass

        call = begin(ended, *arguments)
        try:
            await future
        except BaseException:
            self.module.cancel(call)
            raise
        return self.module.finish(call)

    def close(self):
        """Cancels the calls in progress and releases all objects: at exit, while callbacks can run."""
        self.ask(".exit")


def _import(path):
    try:
        loader = importlib.machinery.ExtensionFileLoader(_MODULE, path)
        module = loader.create_module(importlib.machinery.ModuleSpec(_MODULE, loader, origin=path))
        loader.exec_module(module)
    except ImportError as e:
        reason = f"cannot be loaded: {e}"
        if "PyInit" in str(e):
            reason = (
                "no library with functions for Python: its main package must import pyextension, "
                "of the same release as the Python package"
            )
        elif "subinterpreter" in str(e):
            reason = str(e)
        raise ImportError(f"{path}: {reason}", path=path) from None
    return module


_libraries, _lock = {}, threading.Lock()


def load(path, object_type, wrap):
    """The library at a path: the same one each time."""
    path = os.path.realpath(os.fspath(path))
    with _lock:
        library = _libraries.get(path)
        if library is None:
            library = _libraries[path] = Library(path, object_type, wrap)
    library.ask(".stats")  # an error in a forked child
    return library


@atexit.register
def _close_all():
    # Sources in Python are called from Go's threads: not after the interpreter has ended.
    libraries = [library for library in list(_libraries.values()) if library.here()]
    for library in libraries:
        library.close()
    deadline = time.monotonic() + _PATIENCE_AT_EXIT
    while any(library.module.sources() for library in libraries) and time.monotonic() < deadline:
        time.sleep(0.002)
