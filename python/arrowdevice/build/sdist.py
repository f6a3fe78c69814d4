"""Makes a source distribution: the folder of a project, without what is made of it."""

import gzip
import io
import tarfile
from pathlib import Path

from .archive import date
from .errors import BuildError
from .project import metadata

_MADE = {"__pycache__", "build", "dist", "node_modules", "venv"}


def write(project, folder, output):
    folder, output = Path(folder).resolve(), Path(output).resolve()
    if not (folder / "go.mod").is_file():
        raise BuildError("a source distribution needs go.mod beside pyproject.toml: all of the Go module goes into it")
    name = f"{project.module}-{project.version}"
    path = output / f"{name}.tar.gz"
    output.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file, gzip.GzipFile("", "wb", mtime=0, fileobj=file) as packed, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, f"{name}/PKG-INFO", metadata(project, []).encode())
        for source in sorted(_sources(folder)):
            if source != path:
                _add(archive, f"{name}/{source.relative_to(folder).as_posix()}", source.read_bytes())
    return path


def _sources(folder):
    """All files, but hidden ones and those that are made."""
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name in _MADE or path.is_symlink():
            continue
        if path.is_dir():
            yield from _sources(path)
        else:
            yield path


def _add(archive, name, content):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), 0o644, date()
    archive.addfile(entry, io.BytesIO(content))
