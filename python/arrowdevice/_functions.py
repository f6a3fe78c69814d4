"""The functions of a library as functions of Python."""

from __future__ import annotations

import asyncio
import keyword

from . import _asyncio
from ._arguments import Refused, Transfer, converter, encode_arguments, may_wait
from ._library import Call
from ._values import Failure, encode_str, list_head

# Functions of Python itself bind arguments best: their errors, signatures and help are the usual ones.
_TEMPLATE = """
def {name}({parameters}):
    result, error = _call(({values}))
    if error is None:
        return result
    try:
        raise error
    finally:
        del error

async def {name}_aio({parameters}):
    result, error = await _call_async(({values}))
    if error is None:
        return result
    try:
        raise error
    finally:
        del error
"""

_MISSING = object()


class _Call:
    """How a function is called."""

    def __init__(self, library, described):
        self._library, self.name = library, described["name"]
        self._parameters = [(p["name"], converter(p["type"])) for p in described["params"]]
        self._types = [p["type"] for p in described["params"]]
        self._is_tuple = described["returns"].startswith("tuple[")

    # The two return a result, and the error to be raised. It is raised in the function itself, so
    # that its traceback ends there; exceptions of other code keep theirs.

    def __call__(self, values):
        transfer = Transfer(self._library)
        call = Call(self._library, transfer.origins)
        try:
            request = self._request(transfer, values)
            return self._result(self._library.run(call, request), transfer)
        except BaseException as error:
            call.abandon()
            if not call.started:
                transfer.abandon()
            if type(error) is Refused:
                return None, error.error
            raise

    async def wait(self, values):
        transfer = Transfer(self._library)
        call = Call(self._library, transfer.origins)
        try:
            request = await self._request_for_async(transfer, values)
            return self._result(await _asyncio.run(call, request), transfer)
        except BaseException as error:
            call.abandon()
            if not call.started:
                transfer.abandon()
            if type(error) is Refused:
                return None, error.error
            raise

    async def _request_for_async(self, transfer, values):
        """The request; a source's first item is made in another thread, so that the event loop does not wait for it."""
        if any(map(may_wait, self._types, values)):
            return await asyncio.to_thread(transfer.elsewhere, lambda: self._request(transfer, values))
        return self._request(transfer, values)

    def _request(self, transfer, values):
        encoded = encode_arguments(transfer, self.name, self._parameters, values)
        transfer.commit()
        return b"".join([list_head(1 + len(encoded)), encode_str(self.name), *encoded])

    def _result(self, result, transfer):
        if type(result) is Failure:
            return None, self._library.error(result, transfer.origins)
        return (tuple(result) if self._is_tuple and isinstance(result, list) else result), None


def _python_name(name):
    """The name, or one that is no keyword."""
    if not name.isidentifier():
        raise ImportError(f"{name!r} cannot be a name in Python")
    return name + "_" if keyword.iskeyword(name) else name


def define(library, described, module):
    """A function of Python for a function of the library. Its attribute aio is one to be awaited."""
    names = [_python_name(p["name"]) for p in described["params"]]
    name = _python_name(described["name"])
    defaults = [p.get("default", _MISSING) for p in described["params"]]
    parameters = [n if d is _MISSING else f"{n}=_defaults[{i}]" for i, (n, d) in enumerate(zip(names, defaults))]
    call = _Call(library, described)
    namespace = {"_call": call, "_call_async": call.wait, "_defaults": defaults, "__name__": module}
    values = "".join(n + ", " for n in names)
    code = _TEMPLATE.format(name=name, parameters=", ".join(parameters), values=values)
    exec(compile(code, f"<arrowdevice {library.path}>", "exec"), namespace)
    function, aio = namespace[name], namespace[f"{name}_aio"]
    annotations = {n: p["type"] for n, p in zip(names, described["params"])}
    for f in (function, aio):
        f.__doc__ = described["doc"] or None
        f.__annotations__ = {**annotations, "return": described["returns"]}
    aio.__qualname__ = f"{name}.aio"
    aio.__name__ = name
    function.aio = aio
    return function
