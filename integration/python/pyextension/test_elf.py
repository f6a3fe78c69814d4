"""The tag of a wheel is read from its library: which systems load it."""

import os
import pathlib
import platform
import re
import subprocess
import sys

import pyarrow
import pytest

import wheels

sys.path.append(str(wheels.ROOT / "python"))

from arrowdevice.build import BuildError, elf, tags

LIBRARIES = ["GOLIB", "GILPRODUCER", "CPPPEER"]
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="ELF")


def readelf(path, *options):
    return subprocess.run(["readelf", "--wide", *options, path], capture_output=True, text=True, check=True).stdout


@needs_linux
@pytest.mark.parametrize("name", [*LIBRARIES, "libarrow"])
def test_elf_as_readelf(name):
    if name == "libarrow":
        path = next(pathlib.Path(pyarrow.get_library_dirs()[0]).glob("libarrow.so.*"))
    else:
        path = os.environ[name]
    library = elf.read(path)
    assert list(library.needed) == re.findall(r"\(NEEDED\).*\[(.*)\]", readelf(path, "--dynamic"))
    needs = readelf(path, "--version-info").partition("Version needs section")[2]
    assert library.versions == set(re.findall(r"Name: (\S+)", needs))
    visible = set()
    for line in readelf(path, "--dyn-syms").splitlines():
        columns = line.split()  # Num: Value Size Type Bind Vis Ndx Name
        if len(columns) >= 8 and columns[0][:-1].isdigit() and columns[4] != "LOCAL" and columns[6] != "UND":
            visible.add(columns[7].split("@")[0])
    assert visible and library.visible == visible


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + bytes(100), b"\x7fELF\x01\x01" + bytes(100), b"MZ" + bytes(100)])
def test_not_elf(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(BuildError, match="file: no ELF file of a 64-bit system"):
        tags.platform(path, "linux", "amd64")


@pytest.fixture
def compiled(tmp_path):
    """Makes a shared library of C code."""

    def compile(code, *options, name="lib.so"):
        source, library = tmp_path / "source.c", tmp_path / name
        source.write_text(code)
        wheels.run(os.environ.get("CC", "gcc"), "-shared", "-fPIC", "-o", library, source, *options)
        return library

    return compile


BEGIN = tags.ENTRIES[0]
ENTRY = f"int {BEGIN}(void) {{ return 0; }}\n"


@needs_linux
def test_old_symbols_are_manylinux_of_old(compiled):
    library = elf.read(compiled(ENTRY))
    assert library.versions <= {"GLIBC_2.2.5", "GLIBC_2.17"}
    assert tags.manylinux(library, "x86_64") in ("manylinux_2_5_x86_64", "manylinux_2_17_x86_64")
    assert tags.manylinux(library, "x86_64", glibc=19) == "manylinux_2_19_x86_64"


def needs(*versions, machine="EM_AARCH64", libraries=("libc.so.6",)):
    return elf.Library(machine, libraries, frozenset(versions), frozenset({BEGIN}))


def test_library_for_another_machine_is_an_error():
    assert tags.manylinux(needs("GLIBC_2.17"), "aarch64") == "manylinux_2_17_aarch64"
    with pytest.raises(BuildError, match="the library is for EM_AARCH64, not x86_64"):
        tags.manylinux(needs("GLIBC_2.17"), "x86_64")


def test_newer_glibc_than_the_target_is_an_error():
    assert tags.manylinux(needs("GLIBC_2.17", "GLIBC_2.28"), "aarch64", glibc=28) == "manylinux_2_28_aarch64"
    with pytest.raises(BuildError, match=r"needs glibc 2\.28, and not 2\.17, for which it was compiled"):
        tags.manylinux(needs("GLIBC_2.17", "GLIBC_2.28"), "aarch64", glibc=17)


@pytest.mark.parametrize("name", ["libc.so", "libc.musl-aarch64.so.1"])
def test_musl_is_an_error(name):
    with pytest.raises(BuildError, match="musl cannot load libraries that are written in Go"):
        tags.manylinux(needs(libraries=(name,)), "aarch64")


@needs_linux
@pytest.mark.skipif(platform.libc_ver()[1] < "2.34", reason="the symbol is of glibc 2.34")
def test_new_symbol_is_manylinux_of_its_version(compiled):
    code = ENTRY + f"#include <pthread.h>\nint {BEGIN}x(void) {{ return pthread_detach(pthread_self()); }}\n"
    assert tags.platform(compiled(code), "linux", "amd64") == "manylinux_2_34_x86_64"


@needs_linux
@pytest.mark.skipif(platform.libc_ver()[1] < "2.36", reason="the version is of glibc 2.36")
def test_packed_relocations_are_manylinux_of_their_version(compiled):
    code = ENTRY + f"#include <stdio.h>\nint (*{BEGIN}pointer)(const char *) = puts; void *{BEGIN}x = &{BEGIN}x;\n"
    library = elf.read(compiled(code, "-Wl,-z,pack-relative-relocs", "-Wl,-Bsymbolic"))
    assert "GLIBC_ABI_DT_RELR" in library.versions
    assert tags.manylinux(library, "x86_64") == "manylinux_2_36_x86_64"


@needs_linux
def test_foreign_library_is_an_error_with_its_name(compiled):
    other = compiled("int other(void) { return 0; }", name="libother.so")
    path = compiled(ENTRY + f"int other(void); int {BEGIN}x(void) {{ return other(); }}", f"-L{other.parent}", "-lother", "-lm", "-Wl,--no-as-needed")
    with pytest.raises(BuildError, match=r"needs libother\.so, which not every Linux has"):
        tags.platform(path, "linux", "amd64")


@needs_linux
def test_visible_symbol_is_an_error_with_its_name(compiled):
    with pytest.raises(BuildError, match="not its entry points: two$"):
        tags.platform(compiled(ENTRY + "int two(void) { return 0; }"), "linux", "amd64")


@needs_linux
def test_library_without_pyextension_is_an_error(compiled):
    with pytest.raises(BuildError, match=rf"no symbol {BEGIN}\*: the Go package does not import pyextension"):
        tags.platform(compiled("static int f(void) { return 0; }"), "linux", "amd64")


def test_versions_that_are_not_public():
    with pytest.raises(BuildError, match="GLIBC_PRIVATE"):
        tags.manylinux(needs("GLIBC_PRIVATE"), "aarch64")


def test_loaders_of_all_architectures_are_of_the_system():
    loaders = ["ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "ld-linux-riscv64-lp64d.so.1", "ld64.so.2", "ld64.so.1"]
    assert tags.manylinux(needs(libraries=("libc.so.6", *loaders)), "aarch64") == "manylinux_2_17_aarch64"


def test_other_systems():
    with pytest.raises(BuildError, match="windows/amd64"):
        tags.platform("x.dll", "windows", "amd64")


def test_macos(monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "mac_ver", lambda: ("15.3", ("", "", ""), "arm64"))
    assert tags.platform("libx.dylib", "darwin", "arm64") == "macosx_15_0_arm64"
