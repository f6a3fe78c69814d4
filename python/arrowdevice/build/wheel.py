"""Makes a wheel: builds the library, asks it for its functions, and hands the files to hatchling."""

import shutil
import tempfile
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

from . import functions, golang, project, sources, tags

# The Python package, which a wheel has a copy of, without this one.
_RUNTIME = Path(__file__).resolve().parent.parent
_VENDORED = "_arrowdevice"
# The folder of a project that has the package of an editable installation.
EDITABLE = ".arrowdevice"


def build(metadata, folder, output, go=None, target=None, editable=False):
    """The path of a wheel in the folder output, which is made."""
    package = golang.find(folder, go, target)
    with tempfile.TemporaryDirectory() as temporary:
        contents, root = Path(temporary, "contents"), Path(temporary, "root")
        tag = _package(metadata, package, contents / project.module(metadata), temporary)
        licences = {path: Path(metadata.root, path) for path in metadata.core.license_files}
        licences.update(golang.licences(package))
        for path, file in licences.items():
            copy = root / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        options = {"ignore-vcs": True}
        if editable:
            options["dev-mode-dirs"] = [str(_move(contents, Path(metadata.root, EDITABLE)))]
        else:
            options["force-include"] = {str(contents): "/"}
        table = project.table_elsewhere(metadata, package.doc, licences)
        builder = _Builder(str(root), config={"project": table, "tool": {"hatch": {"build": options}}})
        builder.tag = tag
        return Path(next(builder.build(directory=str(output), versions=["editable" if editable else "standard"])))


class _Builder(WheelBuilder):
    """With a tag that is known already."""

    def get_default_tag(self):
        return self.tag

    def get_default_build_data(self):
        return {**super().get_default_build_data(), "pure_python": False}


def _package(metadata, package, folder, temporary):
    """Writes the Python package to a folder, and returns the tag of its library."""
    system, architecture = package.environment["GOOS"], package.environment["GOARCH"]
    (folder / _VENDORED).mkdir(parents=True)
    library = folder / f"lib{folder.name}{'.dylib' if system == 'darwin' else '.so'}"
    golang.build(package, library, temporary)
    tag = f"{tags.INTERPRETER}-{tags.platform(library, system, architecture, package.glibc)}"
    described = functions.of(_loadable(package, library, temporary), _RUNTIME.parent)
    for name, text in sources.files(library.name, metadata.version, package.doc, described).items():
        (folder / name).write_text(text, encoding="utf-8")
    for file in _RUNTIME.iterdir():
        if file.suffix == ".py" or file.name == "py.typed":
            shutil.copyfile(file, folder / _VENDORED / file.name)
    return tag


def _loadable(package, library, temporary):
    """The library, or the same for this machine."""
    here = golang.for_this_machine(package)
    if here is package:
        return library
    path = Path(temporary, library.name)
    golang.build(here, path, temporary)
    return path


def _move(contents, folder):
    """To a folder that git ignores. What it had before stays as it is for processes that have it loaded."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.move(contents, folder)
    (folder / ".gitignore").write_text("*\n")
    return folder
