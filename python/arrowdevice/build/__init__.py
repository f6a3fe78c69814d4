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
"""

import os
import sys

from . import pyproject, sdist, wheel
from .errors import BuildError

__all__ = ["BuildError", "build_sdist", "build_wheel", "get_requires_for_build_sdist", "get_requires_for_build_wheel"]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """The hook of PEP 517. The setting "go", as the variable GO, names the command of Go."""
    project, package = pyproject.read(".")
    go = (config_settings or {}).get("go") or os.environ.get("GO") or "go"
    return wheel.build(project, package, wheel_directory, go).name


def get_requires_for_build_wheel(config_settings=None):
    return [] if sys.version_info >= (3, 11) else ["tomli"]


def build_sdist(sdist_directory, config_settings=None):
    """The hook of PEP 517."""
    project, _ = pyproject.read(".")
    return sdist.write(project, ".", sdist_directory).name


get_requires_for_build_sdist = get_requires_for_build_wheel
