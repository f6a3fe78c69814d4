"""pip makes a wheel of a Go package with pyproject.toml: arrowdevice.build is its build backend."""

import json
import subprocess
import sys
import tarfile
import zipfile

import packaging.metadata
import pytest

import wheels

sys.path.append(str(wheels.ROOT / "python"))

from arrowdevice import build
from arrowdevice.build import project as projects

MAIN = """// Command extension greets.
package main

import (
	_ "embed"

	"github.com/arrowdevice/arrowdevice/pyextension"
)

//go:embed greeting.txt
var greeting string

func main() {}

func init() {
	pyextension.Func("greet", func(name string) string { return greeting + ", " + name }, pyextension.WithParams("name"))
	pyextension.Func("main", func() string { return greeting })
}
"""
PROJECT = """
[build-system]
requires = []
build-backend = "arrowdevice.build"

[project]
name = "Greet-ings"
dynamic = ["version"]
description = "Greets."
readme = "README.md"
requires-python = ">=3.9"
license = "MIT"
license-files = ["LICEN[CS]E*"]
authors = [{ name = "A. Author", email = "a@example.com" }, { name = "B. Author" }]
maintainers = [{ email = "c@example.com" }]
keywords = ["go", "arrow"]
classifiers = ["Programming Language :: Python :: 3"]
dependencies = ["pyarrow>=26"]
optional-dependencies = { pandas = ["pandas"] }
scripts = { greet = "greet_ings:main" }
urls = { Source = "https://example.com/source" }

[project.entry-points."example.greetings"]
own = "greet_ings:greet"

[tool.hatch.version]
path = "VERSION"
pattern = "(?P<version>.*)"

[tool.arrowdevice]
package = "./cmd/extension"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = wheels.module(tmp_path_factory.mktemp("projects") / "project")
    (folder / "cmd/extension").mkdir(parents=True)
    (folder / "cmd/extension/main.go").write_text(MAIN)
    (folder / "cmd/extension/greeting.txt").write_text("Hello")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "VERSION").write_text("1.0rc1")
    (folder / "README.md").write_text("# Greetings\n\nÄ.\n")
    (folder / "LICENCE").write_text("As you like.\n")
    (folder / ".gitignore").write_text("/vendor/\ngreeting.txt\ngo.sum\n*.log\n")
    (folder / "build.log").write_text("")
    wheels.run(wheels.GO, "mod", "tidy", cwd=folder)
    wheels.run(wheels.GO, "mod", "vendor", cwd=folder)
    return folder


def pip_wheel(source, output, **variables):
    command = ["wheel", "--no-build-isolation", "--no-index", "--no-deps", "--no-cache-dir", "-w", output, source]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", *command]
    return wheels.attempt(*pip, env=wheels.variables(**variables))


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
    assert (metadata.description, metadata.description_content_type) == ("# Greetings\n\nÄ.\n", "text/markdown")
    assert (str(metadata.requires_python), metadata.license_expression) == (">=3.10,>=3.9", "MIT")
    assert "LICENCE" in metadata.license_files and "go/LICENSE" in metadata.license_files
    assert "github.com/apache/arrow-go/v18/LICENSE.txt" in metadata.license_files  # of the folder vendor
    people = (metadata.author, metadata.author_email, metadata.maintainer_email)
    assert people == ("B. Author", '"A. Author" <a@example.com>', "c@example.com")
    assert (metadata.keywords, metadata.classifiers) == (["arrow", "go"], ["Programming Language :: Python :: 3"])
    assert sorted(map(str, metadata.requires_dist)) == ['pandas; extra == "pandas"', "pyarrow>=26"]
    assert metadata.project_urls == {"Source": "https://example.com/source"}


def test_installed(wheel, tmp_path):
    environment = wheels.Environment(tmp_path / "environment")
    environment.pip("install", "--no-index", "--no-deps", wheel)
    code = "import greet_ings, importlib.metadata; print(greet_ings.greet(name='Ada'), greet_ings.__version__, importlib.metadata.version('Greet.Ings'))"
    assert environment.run(code) == "Hello, Ada 1.0rc1 1.0rc1\n"
    assert wheels.attempt(environment.python.with_name("greet")).stderr == "Hello\n"  # sys.exit prints what main returns
    code = "from importlib.metadata import entry_points as of; print(of(group='example.greetings')['own'].load()('Bob'))"
    assert environment.run(code) == "Hello, Bob\n"


def source_distribution(project, output, **variables):
    code = "import json, sys; from arrowdevice import build; print(json.dumps(build.build_sdist(sys.argv[1])))"
    return wheels.attempt(sys.executable, "-c", code, output, cwd=project, env=wheels.variables(**variables))


def test_source_distribution(project, wheel, tmp_path):
    """It has what git ignores and Go needs, and makes the same wheel in another folder."""
    for made in ("dist/older.tar.gz", ".arrowdevice/greet_ings/__init__.py"):
        (project / made).parent.mkdir(parents=True, exist_ok=True)
        (project / made).write_text("")
    ran = source_distribution(project, tmp_path)
    assert ran.returncode == 0, ran.stderr
    name = json.loads(ran.stdout)
    assert name == "greet_ings-1.0rc1.tar.gz"
    with tarfile.open(tmp_path / name) as archive:
        names = {name.removeprefix("greet_ings-1.0rc1/") for name in archive.getnames()}
        information = packaging.metadata.Metadata.from_email(archive.extractfile("greet_ings-1.0rc1/PKG-INFO").read())
    assert (information.name, str(information.version), information.license_files) == ("Greet-ings", "1.0rc1", ["LICENCE"])
    own = {"PKG-INFO", "LICENCE", "README.md", "VERSION", "go.mod", "go.sum", "pyproject.toml", ".gitignore"}
    assert {name for name in names if not name.startswith("vendor/")} == own | {f"cmd/extension/{name}" for name in ("main.go", "greeting.txt")}
    ours = "vendor/github.com/arrowdevice/arrowdevice"
    assert {"vendor/modules.txt", f"{ours}/LICENSE", f"{ours}/pyextension/func.go"} <= names
    again = tmp_path / "again"
    ran = pip_wheel(tmp_path / name, again)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (again / wheel.name).read_bytes() == wheel.read_bytes()
    ran = source_distribution(project, again)
    assert (again / name).read_bytes() == (tmp_path / name).read_bytes()


PLAIN = """package main

func main() {}
"""


@pytest.fixture
def plain(tmp_path):
    """A project in a module that requires nothing."""
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "go.mod").write_text("module example.com/plain\n\ngo 1.25\n")
    (folder / "main.go").write_text(PLAIN)
    (folder / "pyproject.toml").write_text('[project]\nname = "plain"\nversion = "1"\n[tool.arrowdevice]\npackage = "."\n')
    return folder


@pytest.mark.parametrize("path", ["../other", "/nowhere/other"])
def test_replaced_module(plain, path):
    with (plain / "go.mod").open("a") as file:
        file.write(f"\nreplace example.com/other => {path}\n")
    ran = source_distribution(plain, plain / "out")
    assert ran.returncode == 1
    assert f"BuildError: go.mod replaces example.com/other by {path}, which is not in the source distribution" in ran.stderr


def test_replaced_module_in_the_project(plain):
    (plain / "other").mkdir()
    (plain / "other/go.mod").write_text("module example.com/other\n")
    (plain / "other/other.go").write_text("package other\n")
    (plain / "main.go").write_text('package main\n\nimport _ "example.com/other"\n\nfunc main() {}\n')
    (plain / ".gitignore").write_text("other/\n")
    with (plain / "go.mod").open("a") as file:
        file.write("\nrequire example.com/other v0.0.0\n\nreplace example.com/other => ./other\n")
    ran = source_distribution(plain, plain / "out")
    assert ran.returncode == 0, ran.stderr
    with tarfile.open(plain / "out/plain-1.tar.gz") as archive:
        assert {"plain-1/other/go.mod", "plain-1/other/other.go"} <= set(archive.getnames())


def test_workspace(plain):
    (plain / "go.work").write_text("go 1.25\n\nuse .\n")
    ran = source_distribution(plain, plain / "out")
    assert ran.returncode == 1 and f"BuildError: {plain / 'go.work'} is in effect" in ran.stderr
    ran = source_distribution(plain, plain / "out", GOWORK="off")
    assert ran.returncode == 0, ran.stderr
    with tarfile.open(plain / "out/plain-1.tar.gz") as archive:
        assert "plain-1/main.go" in archive.getnames() and "plain-1/go.work" not in archive.getnames()


def test_module_of_a_folder_above(plain):
    (plain / "python").mkdir()
    (plain / "pyproject.toml").rename(plain / "python/pyproject.toml")
    (plain / "python/main.go").write_text(PLAIN)
    ran = source_distribution(plain / "python", plain / "out")
    assert ran.returncode == 1 and f"BuildError: go.mod is in {plain}: a source distribution is made of the folder" in ran.stderr


def test_files_of_cgo(plain):
    """C sources, and libraries that flags of cgo name, which git ignores."""
    (plain / "main.go").write_text("""package main

// #cgo LDFLAGS: ${SRCDIR}/lib/libnamed.a -L${SRCDIR}/more -lfound
import "C"

func main() {}
""")
    for name in ("header.h", "code.c", "other_windows.c", "lib/libnamed.a", "more/libfound.a"):
        (plain / name).parent.mkdir(exist_ok=True)
        (plain / name).write_text("")
    (plain / ".gitignore").write_text("*.a\n*.c\n*.h\n")
    ran = source_distribution(plain, plain / "out")
    assert ran.returncode == 0, ran.stderr
    with tarfile.open(plain / "out/plain-1.tar.gz") as archive:
        added = {f"plain-1/{name}" for name in ("header.h", "code.c", "other_windows.c", "lib/libnamed.a", "more/libfound.a")}
        assert added <= set(archive.getnames())


def test_editable(project, tmp_path):
    """pip install -e, and the same again after an edit. A process that has the old library keeps it."""
    environment = wheels.Environment(tmp_path / "environment")
    environment.see_peers()

    def install():
        environment.pip("install", "--no-index", "--no-build-isolation", "--no-deps", "-e", project, env=wheels.variables())

    greeting, greet = project / "cmd/extension/greeting.txt", "print(greet_ings.greet('Ada'), flush=True)"
    install()
    assert environment.run("import greet_ings;" + greet) == "Hello, Ada\n"
    assert environment.run("import greet_ings; print(greet_ings.__file__)").startswith(str(project))
    command = [environment.python, "-I", "-c", f"import greet_ings; {greet}; input(); {greet}"]
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as old:
            assert old.stdout.readline() == "Hello, Ada\n"
            greeting.write_text("Good evening")
            install()
            assert old.communicate("\n", timeout=60)[0] == "Hello, Ada\n"
        assert environment.run("import greet_ings;" + greet) == "Good evening, Ada\n"
    finally:
        greeting.write_text("Hello")
    assert wheels.run("git", "-c", "core.excludesFile=", "status", "--porcelain", cwd=repository(project)).count(".arrowdevice") == 0
    environment.pip("uninstall", "--yes", "greet_ings")
    assert wheels.attempt(environment.python, "-I", "-c", "import greet_ings").returncode == 1


def repository(folder):
    wheels.run("git", "init", "--quiet", cwd=folder)
    return folder


@pytest.mark.parametrize(
    "old, new, reason",
    [
        ('package = "./cmd/extension"', "", 'does not name the Go package: [tool.arrowdevice] package = "./folder"'),
        ('package = "./cmd/extension"', 'packages = "."\npackage = "."', "tool.arrowdevice.packages: not supported"),
        ('name = "Greet-ings"', "", "Missing required field `project.name`"),
        ('name = "Greet-ings"', 'name = "json"', "json is a module of Python's own: use --name"),
        ('name = "Greet-ings"', 'name = "ArrowDevice"', "arrowdevice is the package that loads libraries: use --name"),
        ('dynamic = ["version"]', 'dynamic = ["version"', "pyproject.toml: "),
        ('">=3.9"', '"<3.9"', "project.requires-python '<3.9': arrowdevice needs >=3.10"),
        ('dynamic = ["version"]', "", "Field `project.version` can only be resolved dynamically"),
        ('"README.md"', '"README.txt"', "README.txt"),
        ("LICEN[CS]E", "COPYING", "project.license-files: no file of the project matches COPYING*"),
        ("LICEN[CS]E", "../", "project.license-files: no file of the project matches ../*"),
        ('license = "MIT"', 'license = "as you like"', "as you like"),
        ('"pyarrow>=26"', '"pyarrow="', "pyarrow="),
    ],
)
def test_errors_of_pyproject(project, tmp_path, old, new, reason):
    assert PROJECT.count(old) == 1
    (tmp_path / "pyproject.toml").write_text(PROJECT.replace(old, new))
    for name in ("README.md", "LICENCE", "VERSION"):
        (tmp_path / name).write_bytes((project / name).read_bytes())
    with pytest.raises(build.BuildError) as refused:
        projects.read(tmp_path)
    assert reason in str(refused.value)


def test_requirements():
    """Without isolation they are those of an extra; with it, pip asks for them."""
    ours = projects.ProjectMetadata(str(wheels.ROOT / "python"), None)
    assert ours.config["project"]["optional-dependencies"]["build"] == build.REQUIRES
    assert build.get_requires_for_build_sdist() == build.get_requires_for_build_editable() == build.get_requires_for_build_wheel() == build.REQUIRES
    *more, zig = build.get_requires_for_build_wheel({"target": "aarch64-linux-gnu"})
    assert more == build.REQUIRES and zig.startswith("ziglang")


def test_pip_shows_the_reason(project, tmp_path):
    ran = pip_wheel(project, tmp_path, GO="/nowhere/go")
    assert ran.returncode != 0
    assert "BuildError: /nowhere/go: no such command: install Go" in ran.stdout + ran.stderr
