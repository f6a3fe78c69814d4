"""The metadata of a project: from the command line, or from pyproject.toml."""

import glob
import keyword
import sys
from pathlib import Path

from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.specifiers import SpecifierSet

from .errors import BuildError

PYTHON = ">=3.10"  # what the Python package arrowdevice needs


def of(package, name, version):
    """The metadata of a Go package that has no pyproject.toml."""
    table = {"name": name, "version": version}
    readme = next((file for file in sorted(package.glob("README*")) if file.is_file()), None)
    if readme:
        kinds = {".md": "text/markdown", ".rst": "text/x-rst"}
        table["readme"] = {"file": readme.name, "content-type": kinds.get(readme.suffix.lower(), "text/plain")}
    return _checked(ProjectMetadata(str(package), PluginManager(), {"project": table}))


def read(root):
    """The metadata in a pyproject.toml, and the folder of its Go package."""
    metadata = ProjectMetadata(str(root.resolve()), PluginManager())
    try:
        tool = metadata.config.get("tool", {}).get("arrowdevice", {})
    except (ValueError, OSError) as error:  # the file is no TOML, or no text
        raise BuildError(f"pyproject.toml: {error}") from error
    if not isinstance(tool, dict):
        raise BuildError("pyproject.toml: tool.arrowdevice is no table")
    tool = dict(tool)
    package = tool.pop("package", None)
    if not isinstance(package, str):
        raise BuildError('pyproject.toml does not name the Go package: [tool.arrowdevice] package = "./folder"')
    if tool:
        raise BuildError(f"pyproject.toml: tool.arrowdevice.{', '.join(sorted(tool))}: not supported")
    return _checked(metadata), root / package


def _checked(metadata):
    try:
        metadata.validate_fields()
    except (ValueError, TypeError, OSError) as error:  # of hatchling, which have the name of the field
        raise BuildError(str(error)) from error
    for pattern in metadata.core.config.get("license-files", []):
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts or not glob.glob(pattern, root_dir=metadata.root):
            raise BuildError(f"project.license-files: no file of the project matches {pattern}")
    name = metadata.core.raw_name
    if not module(metadata).isidentifier() or keyword.iskeyword(module(metadata)):
        raise BuildError(f"name {name!r}: Python cannot import {module(metadata)!r}: use --name")
    if module(metadata) in sys.stdlib_module_names:
        raise BuildError(f"name {name!r}: {module(metadata)} is a module of Python's own: use --name")
    if module(metadata) == "arrowdevice":
        raise BuildError(f"name {name!r}: arrowdevice is the package that loads libraries: use --name")
    needed = SpecifierSet(_requires(metadata))
    if not any(f"3.{minor}" in needed for minor in range(100)):
        raise BuildError(f"project.requires-python {metadata.core.requires_python!r}: arrowdevice needs {PYTHON}")
    return metadata


def _requires(metadata):
    """The Pythons of the project and of the package arrowdevice: both hold."""
    return ",".join(filter(None, [metadata.core.requires_python, PYTHON]))


def module(metadata):
    """The name that Python imports."""
    return metadata.core.name.replace("-", "_")


def table(metadata, summary):
    """The table [project] for archives: nothing in it is dynamic."""
    fields = {key: value for key, value in metadata.core.config.items() if key != "dynamic"}
    fields["version"] = metadata.version
    fields["requires-python"] = _requires(metadata)
    if not metadata.core.description:
        fields["description"] = summary
    return fields


def table_elsewhere(metadata, summary, licences):
    """The same for another folder, which has the licences at these paths, and no other file that the table names."""
    core, fields = metadata.core, table(metadata, summary)
    if core.readme:
        fields["readme"] = {"text": core.readme, "content-type": core.readme_content_type}
    if isinstance(fields.get("license"), dict):
        fields["license"] = {"text": core.license}
    fields["license-files"] = list(map(glob.escape, licences))
    return fields
