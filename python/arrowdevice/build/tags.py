"""The tags of a wheel: the Pythons that run its library, and the systems on which it really loads."""

import re

from . import elf, macho
from .errors import BuildError

# The symbols of the Go package pyextension.
ENTRIES = "arrowdevice_v1_"
_ENTRY = ENTRIES + "call"

_LINUX = {"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "ppc64le", "riscv64": "riscv64", "s390x": "s390x", "loong64": "loongarch64"}
_MACOS = {"amd64": "x86_64", "arm64": "arm64"}

# The library finds functions of CPython by name, which every version since this one has. So the tag is that of the
# stable ABI, which free-threaded builds and other Pythons do not take: "py3-none" would install there.
INTERPRETER = "cp310-abi3"

# Libraries of glibc that every manylinux system has; the linker's name has the architecture in it.
_SYSTEM = re.compile(r"lib(c|m|dl|pthread|rt|resolv|util)\.so\.\d+|ld-?linux-.*\.so\.\d+|ld(-linux|64)?\.so\.\d+")

# The first manylinux of each architecture.
_OLDEST = {"x86_64": 5, "riscv64": 31, "loongarch64": 36}
_OLDEST_OF_OTHERS = 17

# Versions of glibc's whose name has no number, and the minor version that has them first.
_NAMED = {"GLIBC_ABI_DT_RELR": 36}


def platform(path, system, architecture):
    """The tag for a library, which is checked. The system and the architecture are in Go's words."""
    if system == "linux" and architecture in _LINUX:
        return manylinux(elf.read(path), _LINUX[architecture])
    if system == "darwin" and architecture in _MACOS:
        return macosx(macho.minimum(path), _MACOS[architecture])
    raise BuildError(f"wheels for {system}/{architecture} are not supported: linux and darwin are")


def macosx(version, architecture):
    major, minor = version
    # From macOS 11 on, installers know only tags with the minor version zero.
    return f"macosx_{major}_{0 if major > 10 else minor}_{architecture}"


def manylinux(library, architecture):
    _check_symbols(library)
    foreign = [name for name in library.needed if not _SYSTEM.fullmatch(name)]
    if foreign:
        raise BuildError(
            f"the library needs {', '.join(foreign)}, which not every Linux has: link it statically "
            "(for libstdc++.so.6 and libgcc_s.so.1: CGO_LDFLAGS='-static-libstdc++ -static-libgcc')"
        )
    oldest = _OLDEST.get(architecture, _OLDEST_OF_OTHERS)
    return f"manylinux_2_{max([oldest, *map(_minor, library.versions)])}_{architecture}"


def _check_symbols(library):
    if _ENTRY not in library.visible:
        raise BuildError(f"the library has no symbol {_ENTRY}: the Go package does not import pyextension")
    others = sorted(name for name in library.visible if not name.startswith(ENTRIES))
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
