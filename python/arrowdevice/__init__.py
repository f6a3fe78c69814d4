"""Functions of Go in Python: loads shared libraries of Go programs that use package pyextension.

    totals = arrowdevice.load("libtotals.so")
    out = totals.add_running_total(polars_df, "km")
    pl.DataFrame(out)

Arguments are objects of any library that speaks the Arrow PyCapsule interface, for host or device memory, DLPack or
the CUDA Array Interface. Results speak it as well.
"""

from __future__ import annotations

import os
import sys
import types

if sys.version_info < (3, 10):
    # Its signal handlers do not run on a stack of their own, which the Go runtime needs: the process ends with a signal.
    raise ImportError(f"arrowdevice needs Python 3.10 or later, not {sys.version.split()[0]}")
if "t" in getattr(sys, "abiflags", ""):
    # Also where PYTHON_GIL switches the lock on: such a build counts references in another way.
    raise ImportError("arrowdevice needs a Python that is built with the GIL: it has not been tried in a free-threaded one")

from . import _functions, _library, _objects
from ._errors import Cancelled, Error, Panic
from ._objects import Array, RecordBatch, RecordReader, Schema

__all__ = ["Array", "Cancelled", "Error", "Extension", "Panic", "RecordBatch", "RecordReader", "Schema", "load"]

# The version of a release stands here, in CHANGELOG.md, and in the tag: ci/release compares them.
__version__ = "0.1.0"


def _publish(module, names):
    """Makes some classes show themselves as those of a module that has them: this one, or that of a wheel."""
    for name in names:
        public = globals()[name]
        for shown in (public, *(c for c in public.__subclasses__() if c.__name__ == name)):
            shown.__module__ = module


_publish(__name__, ["Array", "Cancelled", "Error", "Panic", "RecordBatch", "RecordReader", "Schema"])


TYPE_CHECKING = False  # which checkers take for true: to import typing takes longer than all the rest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any, Protocol

    class _Function(Protocol):
        """What type checkers know of a function of a library that has no stubs."""

        __name__: str
        aio: Callable[..., Awaitable[Any]]

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


class Extension(types.ModuleType):
    """A loaded library. Its functions are attributes. Each has an attribute aio, which is the same
    function for "await"."""

    def __init__(self, library):
        super().__init__(_module_name(library.path))
        self.__file__ = library.path
        self.__version__ = library.facts["version"]
        self.__package__ = ""
        described = library.ask(".functions")
        functions = [_functions.define(library, d, self.__name__) for d in described]
        self.__dict__.update({f.__name__: f for f in functions})
        self.__all__ = [f.__name__ for f in functions]
        self.__dict__["__getattr__"] = self._absent  # of the module, as one of the class makes every call slower
        self.__doc__ = f"Functions of the Go package {library.facts['module'] or library.path}."
        self._library = library

    def __dir__(self) -> list[str]:
        return [*self.__all__, "__all__", "__doc__", "__file__", "__name__", "__version__"]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> _Function: ...

    def _absent(self, name):
        raise AttributeError(f"{self.__name__} has no function {name!r}; it has {', '.join(self.__all__) or 'none'}")

    def __repr__(self):
        return f"<Go extension {self.__name__!r} from {self.__file__!r}>"

    def __reduce__(self):
        return load, (self.__file__,)


def _module_name(path):
    """libtotals.so is totals."""
    name = os.path.basename(path).partition(".")[0]
    return name[3:] if name.startswith("lib") and len(name) > 3 else name


_extensions: dict[_library.Library, Extension] = {}


def load(path: str | os.PathLike[str]) -> Extension:
    """Loads a shared library that was built with "go build -buildmode=c-shared". The same path gives the
    same object. ImportError has the reason if that fails. In a process that was forked after the first
    load it raises RuntimeError."""
    library = _library.load(path, _objects.Object, _objects.wrap)
    extension = _extensions.get(library)
    if extension is None:
        extension = _extensions.setdefault(library, Extension(library))
    return extension
