"""What the metadata of a wheel says: from the command line, or from pyproject.toml."""

import dataclasses
import keyword
import re
import sys
from pathlib import Path

from .errors import BuildError

PYTHON = ">=3.10"  # what the Python package arrowdevice needs


@dataclasses.dataclass
class Project:
    name: str
    version: str
    summary: str = ""
    python: str = PYTHON
    headers: list = dataclasses.field(default_factory=list)  # more lines of METADATA: pairs
    readme: Path = None
    licences: list = None  # files; None: those beside the Go package

    def __post_init__(self):
        if not re.fullmatch(r"[A-Z0-9]|[A-Z0-9][A-Z0-9._-]*[A-Z0-9]", self.name, re.I):
            raise BuildError(f"name {self.name!r}: letters, digits, and between them . _ - are allowed")
        if not self.module.isidentifier() or keyword.iskeyword(self.module):
            raise BuildError(f"name {self.name!r}: Python cannot import {self.module!r}: use --name")
        if self.module in sys.stdlib_module_names:
            raise BuildError(f"name {self.name!r}: {self.module} is a module of Python's own: use --name")
        if not re.fullmatch(_VERSION, self.version):
            raise BuildError(f"version {self.version!r}: not one of Python's, as 1.2.3, 1.0rc1 or 1.0.post1 are")

    @property
    def module(self):
        """The name that Python imports, and that of the wheel's file."""
        return re.sub(r"[-_.]+", "_", self.name).lower()


_VERSION = r"(\d+!)?\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?"


def metadata(project, licences):
    """The file METADATA; licences are paths below the folder licenses."""
    lines = [("Metadata-Version", "2.4"), ("Name", project.name), ("Version", project.version)]
    if project.summary:
        lines.append(("Summary", " ".join(project.summary.split())))
    lines += project.headers
    lines += [("Requires-Python", project.python), *(("License-File", path) for path in licences)]
    body = ""
    if project.readme:
        kinds = {".md": "text/markdown", ".rst": "text/x-rst"}
        lines.append(("Description-Content-Type", kinds.get(project.readme.suffix.lower(), "text/plain") + "; charset=UTF-8"))
        body = project.readme.read_text(encoding="utf-8")
    for key, value in lines:
        if "\n" in value or "\r" in value:
            raise BuildError(f"{key}: {value!r} has more than one line")
    return "".join(f"{key}: {value}\n" for key, value in lines) + "\n" + body
