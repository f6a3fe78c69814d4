"""Runs a few lines of Python in a process of their own: to see it die, or to give
the driver options that no other test has."""

import inspect
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap

import simulator

_HERE = pathlib.Path(__file__).parent


class Ended:
    """A process that has ended."""

    def __init__(self, process, report):
        self.status = process.returncode  # -11: killed by signal 11
        self.output = process.stdout
        self.errors = process.stderr
        self.report = report  # of the simulator at exit, None if there is none

    def check(self):
        assert self.status == 0, f"status {self.status}\n{self.errors}"
        return self


def run(function, options="", environment=None, *, timeout=180):
    """Runs the body of a function that has no arguments, and sees nothing that is
    around it. It may print."""
    # The module simulator first: it loads the driver that nanoarrow is linked to.
    source = f"import simulator\n\n\n{textwrap.dedent(inspect.getsource(function))}\n\n{function.__name__}()\n"
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "report.json")
        process = subprocess.run(
            [sys.executable, "-c", source],
            env={
                **os.environ,
                "CUDASIM": simulator.options(options, f"report={path}"),
                "PYTHONPATH": os.pathsep.join(map(str, [_HERE, _HERE.parent / "python", _HERE.parent / "python" / "pyextension"])),
                **(environment or {}),
            },
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return Ended(process, json.loads(path.read_text()) if path.exists() else None)
