"""The ends of the program: no process and no file is left."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).parent
TIMEOUT = 180  # seconds until a process counts as left behind

# Four calls that never return from Go, in two workers.
BLOCKED = """
import tempfile, time, graph, main, trouble
if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main.end_on_signals(folder)
        with graph.cluster(2, 2, folder) as client:
            calls = [client.submit(trouble.meet, 1000, pure=False) for _ in range(4)]
            while sum(client.run(trouble.waiting).values()) < 4:
                time.sleep(0.01)
            print("in Go", flush=True)
            calls[0].result()
"""


class Program:
    """A process with a session and a folder for temporary files of its own."""

    def __init__(self, scratch, *arguments, **variables):
        path = f"{HERE}{os.pathsep}{os.environ['PYTHONPATH']}"
        self.scratch, self.process = scratch, subprocess.Popen(
            [sys.executable, *arguments], cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": path, **variables})

    def until(self, text):
        for line in self.process.stdout:
            if text in line:
                return
        raise AssertionError(self.process.stderr.read())

    def ends(self, status, *texts):
        """Checks the status, what it printed, and that it leaves nothing."""
        out, err = self.process.communicate(timeout=300)
        assert self.process.returncode == status and all(text in out + err for text in texts), out + err
        self.leaves_nothing()
        return out, err

    def leaves_nothing(self, files=True):
        deadline = time.monotonic() + TIMEOUT
        while (left := session(self.process.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert left == []
        if files:
            assert list(self.scratch.iterdir()) == []


@pytest.fixture
def program(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    started = []

    def start(*arguments, **variables):
        started.append(Program(scratch, *arguments, **variables))
        return started[-1]

    yield start
    for one in started:
        for left in [one.process.pid, *session(one.process.pid)]:
            try:
                os.kill(left, signal.SIGKILL)
            except ProcessLookupError:
                pass
        one.process.communicate()


def session(leader):
    """The processes of a session, without zombies."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(of) == leader and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


def test_the_whole_program_with_a_killed_worker(program):
    program("main.py", "--rows", "10_000_000", "--kill-worker").ends(0, "10,000,000 orders in 20 files", "gone", "the same result")


@pytest.mark.parametrize("arguments", [["--device"], ["--step", "pyarrow"], ["--compare"]], ids=" ".join)
def test_options(arguments, program):
    want = "ns" if arguments == ["--compare"] else "the same result"
    program("main.py", "--rows", "200_000", "--files", "4", *arguments).ends(0, want)


def interrupt(process):
    """Ctrl-C: each process of the terminal gets it."""
    os.killpg(process.pid, signal.SIGINT)


def terminate(process):
    process.send_signal(signal.SIGTERM)


SLOW = ["main.py", "--rows", "3_000_000", "--step", "python"]


@pytest.mark.parametrize("arguments, moment", [(SLOW, "written in"), (SLOW, "first results"), (["-c", BLOCKED], "in Go")])
@pytest.mark.parametrize("end, number", [(interrupt, signal.SIGINT), (terminate, signal.SIGTERM)])
def test_ended_by_a_signal(arguments, moment, end, number, program):
    started = program(*arguments)
    started.until(moment)
    end(started.process)
    out, err = started.ends(128 + number)
    assert "the same result" not in out and "main.py" not in err, out + err


def test_a_killed_program(program):
    """Its files stay, its workers do not."""
    started = program(*SLOW)
    started.until("first results")
    started.process.kill()
    started.leaves_nothing(files=False)


def test_a_failed_program(program):
    """The step fails in the workers: there is no driver."""
    started = program("main.py", "--rows", "200_000", "--device", CDEVICE_CUDA_DRIVER="/nowhere/libcuda.so")
    started.ends(1, "NotImplementedError", "/nowhere/libcuda.so")


@pytest.mark.parametrize("arguments", [["--rows", "-1"], ["--files", "0"], ["--workers", "two"], ["--device", "--step", "python"]], ids=" ".join)
def test_bad_options(arguments, program):
    program("main.py", *arguments).ends(2, arguments[0])
