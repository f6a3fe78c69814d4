"""Reads pyproject.toml: the tables [project] and [tool.arrowdevice]."""

from pathlib import Path

from .errors import BuildError
from .project import PYTHON, Project

try:
    import tomllib
except ImportError:  # before Python 3.11
    try:
        import tomli as tomllib
    except ImportError:
        tomllib = None


def read(folder):
    """The project, and the folder of its Go package."""
    folder = Path(folder)
    if tomllib is None:
        raise BuildError("to read pyproject.toml, Python before 3.11 needs the package tomli")
    with (folder / "pyproject.toml").open("rb") as file:
        content = tomllib.load(file)
    table, tool = content.get("project"), content.get("tool", {}).get("arrowdevice", {})
    if table is None:
        raise BuildError("pyproject.toml has no table [project], with name and version")
    package = _take(tool, "tool.arrowdevice", "package", str)
    if package is None:
        raise BuildError('pyproject.toml does not name the Go package: [tool.arrowdevice] package = "./folder"')
    _refuse(tool, "tool.arrowdevice")
    return _project(folder, dict(table)), folder / package


def _project(folder, table):
    def take(key, kind=str, default=None):
        return _take(table, "project", key, kind, default)

    name, version = take("name"), take("version")
    for key, value in (("name", name), ("version", version)):
        if value is None:
            raise BuildError(f"pyproject.toml: project.{key} is missing")
    python = ",".join(dict.fromkeys([take("requires-python") or PYTHON, PYTHON]))  # both hold
    project = Project(name, version, take("description") or "", python)
    headers = project.headers
    headers += [("Keywords", ",".join(words)) for words in [take("keywords", list, [])] if words]
    headers += [line for role in ("author", "maintainer") for line in _people(role, take(role + "s", list, []))]
    headers += [("License-Expression", licence) for licence in [take("license")] if licence]
    headers += [("Classifier", classifier) for classifier in take("classifiers", list, [])]
    headers += [("Project-URL", f"{label}, {url}") for label, url in take("urls", dict, {}).items()]
    headers += [("Requires-Dist", requirement) for requirement in take("dependencies", list, [])]
    readme = take("readme")
    if readme is not None:
        project.readme = _file(folder, "readme", readme)
    patterns = take("license-files", list)
    if patterns is not None:
        project.licences = sorted(file for pattern in patterns for file in _matches(folder, pattern))
    _refuse(table, "project")
    return project


def _take(table, where, key, kind, default=None):
    value = table.pop(key, default)
    if value is not default and not isinstance(value, kind):
        raise BuildError(f"pyproject.toml: {where}.{key} is {value!r}; only {_KINDS[kind]} is supported")
    return value


_KINDS = {str: "a string", list: "an array", dict: "a table"}


def _refuse(table, where):
    """What would be left out silently is an error."""
    if table:
        raise BuildError(f"pyproject.toml: {where}.{', '.join(sorted(table))}: not supported")


def _people(role, people):
    """As the specification has them: a name alone, or an address that may have a name."""
    for person in people:
        name, address = person.get("name"), person.get("email")
        if address:
            yield role.capitalize() + "-email", f"{name} <{address}>" if name else address
        elif name:
            yield role.capitalize(), name


def _file(folder, key, name):
    if not (folder / name).is_file():
        raise BuildError(f"pyproject.toml: project.{key}: there is no file {name}")
    return folder / name


def _matches(folder, pattern):
    files = [file for file in folder.glob(pattern) if file.is_file()]
    if not files:
        raise BuildError(f"pyproject.toml: project.license-files: no file matches {pattern}")
    return files
