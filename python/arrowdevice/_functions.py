"""The functions of a library as functions of Python."""

from __future__ import annotations

import keyword

# Functions of Python itself bind arguments best: their errors, signatures and help are the usual ones.
_TEMPLATE = """
def {name}({parameters}):
    return _call({values})

async def {name}_aio({parameters}):
    return await _wait(_begin, {values})
"""

_MISSING = object()


def _python_name(name):
    """The name, or one that is no keyword."""
    if not name.isidentifier():
        raise ImportError(f"{name!r} cannot be a name in Python")
    return name + "_" if keyword.iskeyword(name) else name


def define(library, described, module):
    """A function of Python for a function of the library. Its attribute aio is one to be awaited."""
    types = [(p["name"], p["type"]) for p in described["params"]]
    names = [_python_name(p["name"]) for p in described["params"]]
    name = _python_name(described["name"])
    defaults = [p.get("default", _MISSING) for p in described["params"]]
    parameters = [n if d is _MISSING else f"{n}=_defaults[{i}]" for i, (n, d) in enumerate(zip(names, defaults))]
    namespace = {
        "_call": library.module.function(described["name"], types),
        "_begin": library.module.beginner(described["name"], types),
        "_wait": library.wait,
        "_defaults": defaults,
        "__name__": module,
    }
    code = _TEMPLATE.format(name=name, parameters=", ".join(parameters), values=", ".join(names))
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
