"""The traceback of a process that Go ends."""

import os
import subprocess
import sys

import pytest

import golib

RUN = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
TEST = """
import golib


def test_crash():
    golib.ext.crash("{how}")
"""


def crashed(tmp_path, how, *, with_descriptor):
    """The output that a pytest capturing standard error leaves at a descriptor, or
    without one at standard error itself, where Go crashes."""
    path = tmp_path / "test_crash.py"
    path.write_text(TEST.format(how=how))
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(golib.__file__)}
    with open(tmp_path / "crash", "w+") as end:
        if with_descriptor:
            environment["GOLIB_CRASH_FD"] = str(end.fileno())
        process = subprocess.run(
            [*RUN, str(path)], cwd=tmp_path, env=environment, pass_fds=[end.fileno()], timeout=120,
            stdout=subprocess.DEVNULL, stderr=end if not with_descriptor else subprocess.DEVNULL,
        )  # fmt: skip
        assert process.returncode not in (0, 1), "the process died"
        end.seek(0)
        return end.read()


@pytest.mark.parametrize("how, reason", [("panic", "panic: golib: a panic that a test asked for"), ("fault", "SIGSEGV")])
def test_crash_leaves_the_traceback_of_go(tmp_path, how, reason):
    traceback = crashed(tmp_path, how, with_descriptor=True)
    assert reason in traceback
    assert "main.crash" in traceback
    assert "goroutine" in traceback


def test_without_a_descriptor_the_traceback_is_lost(tmp_path):
    """So the test above tests something."""
    assert "goroutine" not in crashed(tmp_path, "panic", with_descriptor=False)


@pytest.mark.parametrize("number", [-1, 12345])
def test_descriptor_must_be_one(number):
    with pytest.raises(golib.GoError, match="descriptor"):
        golib.ext.crash_output(number)
