"""Type checkers over a program of a user of a package."""

import json
import os
import pathlib
import sys

import wheels

REQUIREMENTS = pathlib.Path(__file__).with_name("requirements-pyright.txt")


def compare(program, environment, folder):
    """Fails unless both checkers find fault with the lines of a program that have a comment, and with no others. The
    comment is mypy's code for the error."""
    (folder / "uses.py").write_text(program)
    wanted = {n: line.split("# ")[1] for n, line in enumerate(program.split("\n"), 1) if "# " in line}
    assert _mypy(environment, folder) == wanted
    assert _pyright(environment, folder) == set(wanted)


def _mypy(environment, folder):
    options = ["--strict", "--no-error-summary", "--cache-dir", folder / "cache", "--python-executable", environment.python]
    ran = wheels.attempt(sys.executable, "-m", "mypy", *options, "uses.py", cwd=folder)
    print(ran.stdout, ran.stderr)
    found = {}
    for line in ran.stdout.splitlines():
        place, _, text = line.partition(": error: ")
        if text:
            assert place.startswith("uses.py:"), line
            found[int(place.split(":")[1])] = text.rsplit("[")[-1].rstrip("]")
    return found


def _pyright(environment, folder):
    """In its standard mode, which is what pyright does of itself."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    python = wheels.run(wheels.ROOT / "ci" / "venv", REQUIREMENTS, env=variables).strip()
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    ran = wheels.attempt(python, "-m", "basedpyright", "--outputjson", "--pythonpath", environment.python, "uses.py", cwd=folder)
    print(ran.stdout, ran.stderr)
    found = [d for d in json.loads(ran.stdout)["generalDiagnostics"] if d["severity"] == "error"]
    assert {pathlib.Path(d["file"]).name for d in found} <= {"uses.py"}
    return {d["range"]["start"]["line"] + 1 for d in found}
