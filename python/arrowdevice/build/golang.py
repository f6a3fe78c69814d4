"""Builds the shared library of a Go package."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

from . import tags
from .errors import BuildError


@dataclasses.dataclass(frozen=True)
class Package:
    go: str  # the command
    folder: Path
    path: str  # "example.com/totals"
    doc: str  # the first sentence of its comment
    module: Path  # the folder of its module
    environment: dict  # of go env


def find(go, package):
    """The Go package main in a folder."""
    folder = Path(package).resolve()
    if not folder.is_dir():
        raise BuildError(f"{package}: no such folder")
    variables = ("GOOS", "GOARCH", "GOHOSTOS", "GOHOSTARCH", "CGO_ENABLED", "CC", "GOROOT")
    environment = json.loads(_go(go, folder, "env", "-json", *variables))
    _check(environment)
    found = json.loads(_go(go, folder, "list", "-json=Name,ImportPath,Doc,Module", "."))
    if found["Name"] != "main":
        raise BuildError(f"{package}: the Go package is {found['Name']}, not main: only a package main becomes a library")
    if "Module" not in found:
        raise BuildError(f"{package}: the Go package is in no module: run go mod init")
    return Package(go, folder, found["ImportPath"], found.get("Doc", ""), Path(found["Module"]["Dir"]), environment)


def _check(environment):
    if environment["CGO_ENABLED"] != "1":
        raise BuildError(
            "cgo is disabled, and a shared library needs it: install a C compiler, "
            f"or name one (CC is {environment['CC']!r}), or set CGO_ENABLED=1"
        )
    target, host = ([environment[p + "OS"], environment[p + "ARCH"]] for p in ("GO", "GOHOST"))
    if target != host:
        raise BuildError(f"GOOS/GOARCH is {'/'.join(target)} on {'/'.join(host)}: the library is loaded here, to list its functions")


def _go(go, folder, *arguments):
    try:
        ran = subprocess.run([go, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    except FileNotFoundError as error:
        raise BuildError(f"{go}: no such command: install Go (https://go.dev/dl), or name it with --go") from error
    except OSError as error:
        raise BuildError(f"{go}: {error.strerror}") from error
    if ran.returncode:
        raise BuildError(f"go {arguments[0]}: {ran.stderr.strip()}")
    return ran.stdout


def build(package, library, temporary):
    """Builds the library at a path. Its bytes depend on the sources, Go and the C compiler, not on paths or times."""
    flags, linker_flags = _linker(package.environment["GOOS"], Path(temporary))
    # With a build ID of Go's, they would depend on the path in linker_flags.
    ldflags = ["-s", "-w", "-buildid=", *flags, f'"-extldflags={" ".join(linker_flags)}"']
    command = [package.go, "build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", f"-ldflags={' '.join(ldflags)}", "-o", library, "."]
    # What Go and the C compiler print is for the user.
    if subprocess.run(command, cwd=package.folder, stdout=sys.stderr).returncode:
        raise BuildError(f"{package.folder}: go build failed; its errors are above")


def _linker(system, temporary):
    """Flags of Go's linker, and of the C linker, after which only the entry points are visible."""
    names = temporary / "entries"
    if system == "darwin":
        names.write_text(f"_{tags.ENTRIES}*\n")
        return [], [f"'-Wl,-exported_symbols_list,{names}'"]
    names.write_text(f"{{ global: {tags.ENTRIES}*; local: *; }};\n")
    # Go's own would be the same for every library. The C linker's is a hash of the contents.
    return ["-B", "none"], [f"'-Wl,--version-script={names}'", "-Wl,--build-id=sha1"]


def licences(package):
    """The licences of what is linked into the library: pairs of a path for the wheel and a file, of each module and of Go."""
    lines = _go(package.go, package.folder, "list", "-deps", "-f", "{{with .Module}}{{.Path}}\t{{.Dir}}{{end}}", ".").splitlines()
    modules = {path: Path(folder) for path, folder in (line.split("\t") for line in lines if line)}
    modules["go"] = Path(package.environment["GOROOT"])
    return [(f"{path}/{file.name}", file) for path, folder in sorted(modules.items()) for file in files_of_licence(folder)]


def files_of_licence(folder):
    begin = ("LICENSE", "LICENCE", "COPYING", "NOTICE")
    return sorted(file for file in folder.iterdir() if file.name.upper().startswith(begin) and file.is_file())
