"""The tags of a wheel: the Pythons that run its library, and the systems on which it really loads."""

import re

import packaging.tags

from . import elf
from .errors import BuildError

# How the symbols of the Go package pyextension begin, which are all that a library shows to others.
ENTRIES = ("PyInit_arrowdevice_v2",)

LINUX = {"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "ppc64le", "riscv64": "riscv64", "s390x": "s390x", "loong64": "loongarch64"}

# The library finds functions of CPython by name, which every version since this one has. So the tag is that of the
# stable ABI, which free-threaded builds and other Pythons do not take: "py3-none" would install there.
INTERPRETER = "cp310-abi3"

# Libraries of glibc that every manylinux system has; the linker's name has the architecture in it.
_SYSTEM = re.compile(r"lib(c|m|dl|pthread|rt|resolv|util)\.so\.\d+|ld-?linux-.*\.so\.\d+|ld(-linux|64)?\.so\.\d+")

_MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}

# The C library of Alpine Linux, by the names that zig and Alpine's own compilers write.
_MUSL = re.compile(r"libc\.so|libc\.musl-.*")
MUSL = "musl cannot load libraries that are written in Go (https://go.dev/issue/54805): wheels are for glibc"

# The first manylinux of each architecture.
_OLDEST = {"x86_64": 5, "riscv64": 31, "loongarch64": 36}
_OLDEST_OF_OTHERS = 17

# Versions of glibc's whose name has no number, and the minor version that has them first.
_NAMED = {"GLIBC_ABI_DT_RELR": 36}


def platform(path, system, architecture, glibc=None):
    """The tag for a library, which is checked. The system and the architecture are in Go's words; glibc is the minor
    version that it was compiled for."""
    if system == "linux" and architecture in LINUX:
        return manylinux(elf.read(path), LINUX[architecture], glibc)
    if system == "darwin":  # the C compiler compiles for the version that it runs on
        return next(packaging.tags.platform_tags())
    raise BuildError(f"wheels for {system}/{architecture} are not supported: linux and darwin are")


def manylinux(library, architecture, glibc=None):
    if library.machine != _MACHINES.get(architecture, library.machine):
        raise BuildError(f"the library is for {library.machine}, not {architecture}")
    foreign = [name for name in library.needed if not _SYSTEM.fullmatch(name)]
    if any(_MUSL.fullmatch(name) for name in foreign):
        raise BuildError(MUSL)
    _check_symbols(library)
    if foreign:
        raise BuildError(
            f"the library needs {', '.join(foreign)}, which not every Linux has: link it statically "
            "(for libstdc++.so.6 and libgcc_s.so.1: CGO_LDFLAGS='-static-libstdc++ -static-libgcc')"
        )
    needed = max(map(_minor, library.versions), default=0)
    if glibc is not None and needed > glibc:
        raise BuildError(f"the library needs glibc 2.{needed}, and not 2.{glibc}, for which it was compiled")
    return f"manylinux_2_{max(_OLDEST.get(architecture, _OLDEST_OF_OTHERS), needed, glibc or 0)}_{architecture}"


def _check_symbols(library):
    others = sorted(name for name in library.visible if not name.startswith(ENTRIES))
    if len(others) == len(library.visible):
        raise BuildError(f"the library has no symbol {ENTRIES[0]}*: the Go package does not import pyextension")
    if others:
        raise BuildError(f"the library shows symbols that are not its entry points: {', '.join(others)}")


def _minor(version):
    """Of glibc, which has been 2 since 1997."""
    if version in _NAMED:
        return _NAMED[version]
    number = re.fullmatch(r"GLIBC_2\.(\d+)(\.\d+)?", version)
    if not number:
        raise BuildError(f"the library needs {version}, which is no version of glibc's public symbols")
    return int(number[1])
