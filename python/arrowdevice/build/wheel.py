"""Makes a wheel: builds the library, asks it for its functions, and writes the archive."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from .. import __version__
from . import archive, golang, sources, tags
from .errors import BuildError
from .project import metadata

# The Python package, which a wheel has a copy of, without this one.
_RUNTIME = Path(__file__).resolve().parent.parent
_VENDORED = "_arrowdevice"


def build(project, package, output, go="go"):
    """The path of a wheel in the folder output, which is made."""
    package = golang.find(go, package)
    system, architecture = package.environment["GOOS"], package.environment["GOARCH"]
    with tempfile.TemporaryDirectory() as temporary:
        library = Path(temporary, f"lib{project.module}" + (".dylib" if system == "darwin" else ".so"))
        golang.build(package, library, temporary)
        tag = f"{tags.INTERPRETER}-{tags.platform(library, system, architecture)}"
        files = _runtime(f"{project.module}/{_VENDORED}")
        functions = _functions(library)
        files[f"{project.module}/{library.name}"] = library.read_bytes()
    if not project.summary:
        project.summary = package.doc
    files.update(sources.files(project.module, library.name, package.doc, functions))
    info = f"{project.module}-{project.version}.dist-info"
    files.update(_info(project, package, info, tag))
    path = Path(output, f"{project.module}-{project.version}-{tag}.whl")
    path.parent.mkdir(parents=True, exist_ok=True)
    archive.write(path, files, info)
    return path


def _runtime(folder):
    """The files of the Python package arrowdevice."""
    return {f"{folder}/{file.name}": file.read_bytes() for file in _RUNTIME.iterdir() if file.is_file()}


# The package answers into a file: Go code runs when a library is loaded, and may print.
_LIST = """
import json, sys
sys.path.insert(0, sys.argv[1])
from arrowdevice import _library
try:
    functions = _library.load(sys.argv[2], None).ask(".functions")
except ImportError as error:
    sys.exit(str(error))
with open(sys.argv[3], "w", encoding="utf-8") as answer:
    json.dump(functions, answer)
"""


def _functions(library):
    """The functions of a library, as it lists them. It is loaded in a process of its own: a Go runtime ends with its process."""
    answer = library.with_suffix(".json")
    command = [sys.executable, "-c", _LIST, _RUNTIME.parent, library, answer]
    ran = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
    if ran.returncode:
        raise BuildError(f"the library cannot be loaded: {ran.stderr.strip() or ran.returncode}")
    return json.loads(answer.read_text(encoding="utf-8"))


def _info(project, package, info, tag):
    """The files of the folder dist-info, but for RECORD."""
    own = project.licences
    if own is None:
        own = golang.files_of_licence(package.folder) or golang.files_of_licence(package.module)
    licences = {file.name: file.read_bytes() for file in own}
    licences.update((path, file.read_bytes()) for path, file in golang.licences(package))
    wheel = f"Wheel-Version: 1.0\nGenerator: arrowdevice.build {__version__}\nRoot-Is-Purelib: false\nTag: {tag}\n"
    return {
        f"{info}/METADATA": metadata(project, sorted(licences)).encode(),
        f"{info}/WHEEL": wheel.encode(),
        **{f"{info}/licenses/{path}": text for path, text in licences.items()},
    }
