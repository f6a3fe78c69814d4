"""Asks a library for its functions."""

import json
import subprocess
import sys

from .errors import BuildError

# The package answers into a file: Go code runs when a library is loaded, and may print.
_LIST = """
import json, sys
sys.path.insert(0, sys.argv[1])
import arrowdevice
try:
    functions = arrowdevice.load(sys.argv[2])._library.ask(".functions")
except ImportError as error:
    sys.exit(str(error))
with open(sys.argv[3], "w", encoding="utf-8") as answer:
    json.dump(functions, answer)
"""


def of(library, path):
    """The functions, as the library lists them. It is loaded in a process of its own, which finds the package arrowdevice
    in path: a Go runtime ends with its process."""
    answer = library.with_suffix(".json")
    command = [sys.executable, "-c", _LIST, path, library, answer]
    ran = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, encoding="utf-8", errors="replace")
    if ran.returncode:
        raise BuildError(f"the library cannot be loaded: {ran.stderr.strip() or ran.returncode}")
    described = json.loads(answer.read_text(encoding="utf-8"))
    answer.unlink()
    return described
