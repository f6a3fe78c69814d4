"""What tests of wheels share: the builder, environments to install into, and modules of Go."""

import os
import pathlib
import re
import site
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "pyextension"
GO = os.environ.get("GO", "go")
# All that the library of a wheel shows to other libraries.
ENTRIES = ["PyInit_arrowdevice_v2"]


def attempt(*command, timeout=600, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout, **options)


def run(*command, **options):
    """What a command prints. One that fails is an error with what it printed."""
    ran = attempt(*command, **options)
    assert ran.returncode == 0, f"{command}: {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def variables(**more):
    """An environment in which Python finds the package arrowdevice of this repository."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "python"), **more}


def build(package, output, *options, umask=-1, **more):
    """The path of a wheel of a Go package, made by the command line."""
    command = [sys.executable, "-m", "arrowdevice.build", package, "-o", output, *options]
    return pathlib.Path(run(*command, env=variables(**more), umask=umask).strip())


def refusal(package, *options, **more):
    """The message with which the command line refuses a package."""
    refused = attempt(sys.executable, "-m", "arrowdevice.build", package, *options, env=variables(**more))
    assert refused.returncode == 1 and "Traceback" not in refused.stderr, refused.stdout + refused.stderr
    return refused.stderr.strip()


# Adds the packages of this environment, polars and others, to the one that runs it: they
# cannot be installed again without a network.
SEE_PEERS = f"""
import pathlib, site
pathlib.Path(site.getsitepackages()[0], "peers.pth").write_text({os.linesep.join(filter(os.path.isdir, site.getsitepackages()))!r})
"""


class Environment:
    """A Python environment without pip, into which wheels are installed without a network. It
    has no other package, arrowdevice included, before see_peers."""

    def __init__(self, folder):
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        self.python = folder / "bin" / "python"

    def pip(self, *arguments, **options):
        return run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.python, *arguments, **options)

    def install(self, *wheels):
        self.pip("install", "--no-index", "--no-cache-dir", *wheels)

    def see_peers(self):
        self.run(SEE_PEERS)

    def run(self, code, *arguments, **options):
        """Without the variables and the current folder of the tests."""
        return run(self.python, "-I", "-c", code, *arguments, **options)


def module(folder, **sources):
    """Makes a Go module with files, which finds this repository's module and what that requires
    without a network."""
    folder.mkdir(parents=True, exist_ok=True)
    required = (ROOT / "go.mod").read_text()
    ours = re.match(r"module (\S+)", required)[1]
    required = required.replace(f"module {ours}", f"module example.com/{folder.name}", 1)
    required += f"\nrequire {ours} v0.0.0\n\nreplace {ours} => {ROOT}\n"
    (folder / "go.mod").write_text(required)
    (folder / "go.sum").write_bytes((ROOT / "go.sum").read_bytes())
    for name, source in sources.items():
        (folder / f"{name}.go").write_text(source)
    return folder
