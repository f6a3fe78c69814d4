"""The command line: python -m arrowdevice.build."""

import argparse
import os
import sys
from pathlib import Path

from . import wheel
from .errors import BuildError
from .project import Project


def main():
    options = _parse()
    try:
        package = Path(options.package).resolve()
        project = Project(options.name or package.name, options.version, readme=_readme(package))
        print(wheel.build(project, package, options.output, options.go))
    except BuildError as error:
        sys.exit(f"arrowdevice.build: {error}")


def _parse():
    parser = argparse.ArgumentParser(prog="python -m arrowdevice.build", description="Makes a wheel of a Go package that imports pyextension.")
    parser.add_argument("package", help="the folder of the Go package main")
    parser.add_argument("-o", "--output", default=".", metavar="DIR", help="the folder for the wheel (the current one)")
    parser.add_argument("--name", help="the name of the wheel, which Python imports with _ for - (the folder's)")
    parser.add_argument("--version", default="0.0.0", metavar="V", help="the version of the wheel (%(default)s)")
    parser.add_argument("--go", default=os.environ.get("GO", "go"), help="the command of Go (GO, or go); GOFLAGS and CGO_LDFLAGS apply")
    return parser.parse_args()


def _readme(package):
    """The README beside the Go package, as the description."""
    return next((file for file in sorted(package.glob("README*")) if file.is_file()), None)


if __name__ == "__main__":
    main()
