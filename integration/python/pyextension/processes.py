"""Programs with the Go library of the tests, each in a process of its own."""

import subprocess
import sys
import textwrap

import extension

PATIENCE = 120  # seconds until a process counts as hanging

PREAMBLE = """
import sys
sys.path[:0] = [{package!r}]
import arrowdevice
import pyarrow as pa
ext = arrowdevice.load({path!r})
BATCH = pa.record_batch({{"a": [1, 2]}})
"""


def start(program, tmp_path):
    """A process that runs a program, with standard output as text."""
    path = tmp_path / "program.py"
    path.write_text(PREAMBLE.format(package=extension.PACKAGE, path=extension.PATH) + textwrap.dedent(program))
    command = [sys.executable, "-X", "faulthandler", "-X", "dev", "-W", "ignore::DeprecationWarning", str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(program, tmp_path, returns=0):
    """The output of a program that ends by itself and writes nothing to standard error."""
    process = start(program, tmp_path)
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert (process.returncode, err) == (returns, "")
    return out.splitlines()
