"""Makes wheels of Go packages that import pyextension.

    python -m arrowdevice.build ./mygopackage

The wheel holds a Python package with the shared library of the Go package, a copy of the Python package arrowdevice, which
loads it, and type stubs. It depends on nothing, and works with every CPython from 3.10 on that has the GIL.

As a PEP 517 backend, with a pyproject.toml beside the Go package or above it:

    [build-system]
    requires = ["arrowdevice"]
    build-backend = "arrowdevice.build"

    [project]
    name = "totals"
    version = "1.0"

    [tool.arrowdevice]
    package = "./mygopackage"

hatchling reads the project and writes the archives; it is needed to build only, like all of REQUIRES.
"""

from pathlib import Path

from .errors import BuildError

__all__ = [
    "BuildError", "build_editable", "build_sdist", "build_wheel",
    "get_requires_for_build_editable", "get_requires_for_build_sdist", "get_requires_for_build_wheel",
]  # fmt: skip

# pyproject.toml has the same as the extra "build".
REQUIRES = ["hatchling>=1.27,<2", "packaging>=24.2", "pyelftools>=0.30,<1"]
_ZIG = "ziglang>=0.14,<1"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """The hook of PEP 517. The setting "go", as the variable GO, names the command of Go; "target" a system to compile
    for, as the option --target does."""
    return _build(wheel_directory, config_settings)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """The hook of PEP 660. The library is in the folder .arrowdevice of the project, where each installation builds it anew."""
    return _build(wheel_directory, config_settings, editable=True)


def build_sdist(sdist_directory, config_settings=None):
    """The hook of PEP 517."""
    from . import project, sdist

    return sdist.write(*project.read(Path.cwd()), sdist_directory, _setting(config_settings, "go")).name


def get_requires_for_build_wheel(config_settings=None):
    return REQUIRES + ([_ZIG] if _setting(config_settings, "target") else [])


def get_requires_for_build_sdist(config_settings=None):
    return REQUIRES


get_requires_for_build_editable = get_requires_for_build_sdist


def _setting(settings, name):
    return (settings or {}).get(name)


# The modules that need what REQUIRES names are imported after it is there.
def _build(output, settings, editable=False):
    from . import project, wheel

    metadata, package = project.read(Path.cwd())
    target = None if editable else _setting(settings, "target")
    return wheel.build(metadata, package, output, _setting(settings, "go"), target, editable).name
