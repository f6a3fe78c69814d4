"""Programs with the Go library of the tests, each in a process of its own."""

import os
import subprocess
import sys
import textwrap

import extension

PATIENCE = 120  # seconds until a process counts as hanging

# What a program begins with: it finds the package, or has loaded the library as well.
FINDS = f"import sys\nsys.path[:0] = [{extension.PACKAGE!r}]\n"
LOADS = f"""{FINDS}
import arrowdevice
import pyarrow as pa
ext = arrowdevice.load({extension.PATH!r})
BATCH = pa.record_batch({{"a": [1, 2]}})
"""


def start(program, tmp_path, *options, head=LOADS, **environment):
    """A process that runs a program, with standard output as text."""
    path = tmp_path / "program.py"
    path.write_text(head + textwrap.dedent(program))
    command = [sys.executable, *options, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})


def ended(program, tmp_path, *options, **keywords):
    """The exit status of a program that ends by itself, and its standard output and error."""
    process = start(program, tmp_path, *options, **keywords)
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return process.returncode, out, err


STRICT = "-X", "faulthandler", "-X", "dev", "-W", "ignore::DeprecationWarning"


def run(program, tmp_path):
    """The output of a program that ends well and writes nothing to standard error."""
    status, out, err = ended(program, tmp_path, *STRICT)
    assert (status, err) == (0, "")
    return out.splitlines()
