"""pip makes a wheel of a Go package with pyproject.toml: arrowdevice.build is its build backend."""

import json
import sys
import tarfile
import zipfile

import packaging.metadata
import pytest

import wheels

MAIN = """// Command extension greets.
package main

import "github.com/arrowdevice/arrowdevice/pyextension"

func main() {}

func init() {
	pyextension.Func("greet", func(name string) string { return "Hello, " + name }, pyextension.WithParams("name"))
}
"""
PROJECT = """
[build-system]
requires = []
build-backend = "arrowdevice.build"

[project]
name = "Greet-ings"
version = "1.0rc1"
description = "Greets."
readme = "README.md"
requires-python = ">=3.9"
license = "MIT"
license-files = ["LICEN[CS]E*"]
authors = [{ name = "A. Author", email = "a@example.com" }, { name = "B. Author" }]
keywords = ["go", "arrow"]
classifiers = ["Programming Language :: Go"]
dependencies = ["pyarrow>=26"]
urls = { Source = "https://example.com/source" }

[tool.arrowdevice]
package = "./cmd/extension"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = wheels.module(tmp_path_factory.mktemp("projects") / "project")
    (folder / "cmd/extension").mkdir(parents=True)
    (folder / "cmd/extension/main.go").write_text(MAIN)
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "README.md").write_text("# Greetings\n\nÄ.\n")
    (folder / "LICENCE").write_text("As you like.\n")
    (folder / ".hidden").write_text("")
    return folder


def pip_wheel(source, output, **variables):
    command = ["wheel", "--no-build-isolation", "--no-index", "--no-deps", "--no-cache-dir", "-w", output, source]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", *command]
    return wheels.attempt(*pip, env=wheels.variables(GOFLAGS="-mod=mod", **variables))


@pytest.fixture(scope="module")
def wheel(project, tmp_path_factory):
    output = tmp_path_factory.mktemp("wheels")
    ran = pip_wheel(project, output)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (wheel,) = output.iterdir()
    return wheel


def test_metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        metadata = packaging.metadata.Metadata.from_email(archive.read("greet_ings-1.0rc1.dist-info/METADATA"))
        assert archive.read("greet_ings-1.0rc1.dist-info/licenses/LICENCE") == b"As you like.\n"
    assert wheel.name.startswith("greet_ings-1.0rc1-cp310-abi3-")
    assert (metadata.name, str(metadata.version), metadata.summary) == ("Greet-ings", "1.0rc1", "Greets.")
    assert (metadata.description, metadata.description_content_type) == ("# Greetings\n\nÄ.\n", "text/markdown; charset=UTF-8")
    assert (metadata.requires_python, metadata.license_expression) == (">=3.9,>=3.10", "MIT")
    assert "LICENCE" in metadata.license_files and "go/LICENSE" in metadata.license_files
    assert (metadata.author, metadata.author_email) == ("B. Author", "A. Author <a@example.com>")
    assert (metadata.keywords, metadata.classifiers) == (["go", "arrow"], ["Programming Language :: Go"])
    assert (list(map(str, metadata.requires_dist)), metadata.project_urls) == (["pyarrow>=26"], {"Source": "https://example.com/source"})


def test_installed(wheel, tmp_path):
    environment = wheels.Environment(tmp_path / "environment")
    environment.pip("install", "--no-index", "--no-deps", wheel)
    assert environment.run("import greet_ings; print(greet_ings.greet(name='Ada'))") == "Hello, Ada\n"


def test_source_distribution(project, wheel, tmp_path):
    code = "import json, sys; from arrowdevice import build; print(json.dumps(build.build_sdist(sys.argv[1])))"
    name = json.loads(wheels.run(sys.executable, "-c", code, tmp_path, cwd=project, env=wheels.variables()))
    assert name == "greet_ings-1.0rc1.tar.gz"
    with tarfile.open(tmp_path / name) as archive:
        names = archive.getnames()
        assert archive.extractfile("greet_ings-1.0rc1/PKG-INFO").read().startswith(b"Metadata-Version: 2.4\nName: Greet-ings\n")
    expected = {"PKG-INFO", "LICENCE", "README.md", "cmd/extension/main.go", "go.mod", "go.sum", "pyproject.toml"}
    assert set(names) == {f"greet_ings-1.0rc1/{path}" for path in expected}
    again = tmp_path / "again"
    ran = pip_wheel(tmp_path / name, again)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (again / wheel.name).read_bytes() == wheel.read_bytes()


@pytest.mark.parametrize(
    "old, new, reason",
    [
        ('package = "./cmd/extension"', "", 'does not name the Go package: [tool.arrowdevice] package = "./folder"'),
        ('package = "./cmd/extension"', "package = 1", "tool.arrowdevice.package is 1; only a string is supported"),
        ('package = "./cmd/extension"', 'packages = "."\npackage = "."', "tool.arrowdevice.packages: not supported"),
        ('name = "Greet-ings"', "", "project.name is missing"),
        ('version = "1.0rc1"', 'dynamic = ["version"]', "project.version is missing"),
        ('license = "MIT"', 'license = { text = "MIT" }', "project.license is {'text': 'MIT'}; only a string is supported"),
        ('license = "MIT"', 'scripts = { run = "greet:run" }', "project.scripts: not supported"),
        ('"README.md"', '"README.txt"', "project.readme: there is no file README.txt"),
        ("LICEN[CS]E", "COPYING", "project.license-files: no file matches COPYING*"),
        ('"Greets."', '"""Gr\neets."""', None),
        ('["go", "arrow"]', '["go\\nName: other"]', "Keywords: 'go\\nName: other' has more than one line"),
    ],
)
def test_errors_of_pyproject(project, tmp_path, old, new, reason):
    assert PROJECT.count(old) == 1
    (tmp_path / "pyproject.toml").write_text(PROJECT.replace(old, new))
    for name in ("README.md", "LICENCE"):
        (tmp_path / name).write_bytes((project / name).read_bytes())
    code = """
import sys
from arrowdevice.build import BuildError, project, pyproject
try:
    print(project.metadata(pyproject.read(".")[0], []))
except BuildError as refused:
    sys.exit(str(refused))
"""
    ran = wheels.attempt(sys.executable, "-c", code, cwd=tmp_path, env=wheels.variables())
    if reason is None:
        assert "\nSummary: Gr eets.\n" in ran.stdout
    else:
        assert ran.returncode == 1 and ran.stderr.strip().endswith(reason), ran.stderr


def test_pip_shows_the_reason(project, tmp_path):
    ran = pip_wheel(project, tmp_path, GO="/nowhere/go")
    assert ran.returncode != 0
    assert "BuildError: /nowhere/go: no such command: install Go" in ran.stdout + ran.stderr
