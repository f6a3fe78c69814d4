"""The ends of the program: no process and no file is left."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).parent
PATIENCE = 180  # seconds until a process counts as left behind

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
            print("first results", flush=True)
            calls[0].result()
"""


@pytest.fixture
def program(tmp_path):
    """Starts a program with a session and a folder for temporary files of its own."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    started = []

    def start(*arguments, variables={}):
        process = subprocess.Popen([sys.executable, *arguments], cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                                   env={**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": f"{HERE}{os.pathsep}{os.environ['PYTHONPATH']}", **variables})
        started.append(process)
        return process

    yield start
    for process in started:
        for left in [process.pid, *session(process.pid)]:
            try:
                os.kill(left, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.communicate()


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


def nothing_is_left(process, scratch, files=True):
    deadline = time.monotonic() + PATIENCE
    while (left := session(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    if files:
        assert list(scratch.iterdir()) == []


def until(text, process):
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(process.stderr.read())


def test_the_whole_program_with_a_killed_worker(program, tmp_path):
    process = program("main.py", "--rows", "10_000_000", "--kill-worker")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    assert "10,000,000 orders in 20 files" in out and "gone" in out and "the same result" in out
    nothing_is_left(process, tmp_path / "scratch")


@pytest.mark.parametrize("arguments", [["--device"], ["--step", "pyarrow"], ["--compare"]], ids=" ".join)
def test_options(arguments, program, tmp_path):
    process = program("main.py", "--rows", "200_000", "--files", "4", *arguments)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    assert ("ns" if arguments == ["--compare"] else "the same result") in out
    nothing_is_left(process, tmp_path / "scratch")


def interrupt(process):
    """Ctrl-C: each process of the terminal gets it."""
    os.killpg(process.pid, signal.SIGINT)


def terminate(process):
    process.send_signal(signal.SIGTERM)


interrupt.signal, terminate.signal = signal.SIGINT, signal.SIGTERM


SLOW = ["main.py", "--rows", "3_000_000", "--step", "python"]


@pytest.mark.parametrize("moment", ["written in", "first results"])
@pytest.mark.parametrize("end", [interrupt, terminate])
def test_ended_by_a_signal(end, moment, program, tmp_path):
    process = program(*SLOW)
    until(moment, process)
    end(process)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + end.signal and "the same result" not in out and "main.py" not in err, out + err
    nothing_is_left(process, tmp_path / "scratch")


@pytest.mark.parametrize("end", [interrupt, terminate])
def test_ended_while_workers_are_in_go(end, program, tmp_path):
    process = program("-c", BLOCKED)
    until("first results", process)
    end(process)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + end.signal, out + err
    nothing_is_left(process, tmp_path / "scratch")


def test_a_killed_program(program, tmp_path):
    """Its files stay, its workers do not."""
    process = program(*SLOW)
    until("first results", process)
    process.kill()
    nothing_is_left(process, tmp_path / "scratch", files=False)


def test_a_failed_program(program, tmp_path):
    """The step fails in the workers: there is no driver."""
    process = program("main.py", "--rows", "200_000", "--device", variables={"CDEVICE_CUDA_DRIVER": "/nowhere/libcuda.so"})
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and "NotImplementedError" in err and "/nowhere/libcuda.so" in err, out + err
    nothing_is_left(process, tmp_path / "scratch")


@pytest.mark.parametrize("arguments", [["--rows", "-1"], ["--files", "0"], ["--workers", "two"], ["--device", "--step", "python"]], ids=" ".join)
def test_bad_options(arguments, program, tmp_path):
    process = program("main.py", *arguments)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2 and arguments[0] in err, out + err
    nothing_is_left(process, tmp_path / "scratch")
