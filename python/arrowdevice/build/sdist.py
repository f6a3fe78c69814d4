"""Makes a source distribution: the folder of a project, with all that Go compiles of it."""

import copy
import json
from pathlib import Path

from hatchling.builders.sdist import SdistBuilder

from . import golang, project
from .errors import BuildError
from .wheel import EDITABLE


def write(metadata, folder, output, go=None):
    """The path of the archive in the folder output, which is made."""
    root = Path(metadata.root)
    package = golang.find(folder, go)
    _check(package, root)
    # Also what git ignores, and with it hatchling: generated code, embedded files, a folder vendor.
    needed = {str(file): str(file.relative_to(root)) for file in golang.files(package) if file.is_relative_to(root)}
    config = copy.deepcopy(metadata.config)
    config["project"] = project.table(metadata, package.doc)
    build = config.setdefault("tool", {}).setdefault("hatch", {}).setdefault("build", {})
    options = build.setdefault("targets", {}).setdefault("sdist", {})
    options["force-include"] = {**needed, **options.get("force-include", {})}
    options["exclude"] = [*options.get("exclude", build.get("exclude", [])), f"/{EDITABLE}", "/dist", "go.work", "go.work.sum"]
    return Path(next(SdistBuilder(str(root), config=config).build(directory=str(output), versions=["standard"])))


def _check(package, root):
    """Refuses what Go would not find, or would find elsewhere, when it builds the source distribution."""
    if not package.module.is_relative_to(root):
        raise BuildError(f"go.mod is in {package.module}: a source distribution is made of the folder of pyproject.toml, and needs it there")
    workspace = package.environment["GOWORK"]
    if workspace not in ("", "off"):
        raise BuildError(f"{workspace} is in effect, which a source distribution does not have: require its modules in go.mod, and set GOWORK=off")
    if (package.module / "vendor" / "modules.txt").is_file():
        return  # from which Go takes all modules
    for replace in json.loads(golang.go(package, "mod", "edit", "-json"))["Replace"] or []:
        path = replace["New"]["Path"]
        local = "Version" not in replace["New"]
        if local and (Path(path).is_absolute() or not (package.module / path).resolve().is_relative_to(root)):
            raise BuildError(
                f"go.mod replaces {replace['Old']['Path']} by {path}, which is not in the source distribution: "
                "require a version of it, or let go mod vendor copy it"
            )
