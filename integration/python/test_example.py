"""The example in examples/pyextension does what it says. It runs in a process of
its own: two Go runtimes do not belong in one."""

import os
import pathlib
import subprocess
import sys

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "pyextension" / "use.py"


def test_python_extension():
    ran = subprocess.run([sys.executable, EXAMPLE, os.environ["PYEXTENSION"]], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "km_total: 12.5, 12.5, 15.5; city was not copied; nothing is left\n"
