"""Several Go runtimes in one process: two wheels, and the driver of ADBC for Flight SQL, which is a Go library
as well. Each test is a process."""

import pathlib
import signal
import subprocess
import time

import pytest

import wheels

PROGRAM = pathlib.Path(__file__).with_name("runtimes.py")
ORDERS = ["totals,samples,adbc_driver_flightsql", "adbc_driver_flightsql,samples,totals"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runtimes")
    environment = wheels.Environment(folder / "environment")
    environment.install(
        wheels.build(wheels.EXAMPLE, folder, "--name", "totals"),
        wheels.build(wheels.ROOT / "integration" / "golib", folder, "--name", "samples"),
    )
    environment.see_peers()
    return environment


@pytest.fixture(params=ORDERS, ids=["wheels first", "driver first"])
def command(environment, request):
    return [environment.python, "-I", "-X", "faulthandler", PROGRAM, request.param]


def test_threads(command):
    ran = wheels.attempt(*command, "threads")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")


def started(command, part):
    return subprocess.Popen([*command, part], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_interrupt(command):
    with started(command, "interrupt") as process:
        try:
            for _ in range(3):
                assert process.stdout.readline() == "waiting\n"
                time.sleep(0.1)  # until it waits; earlier is right too
                sent = time.monotonic()
                process.send_signal(signal.SIGINT)
                assert process.stdout.readline() == "interrupted\n"
                assert time.monotonic() - sent < 30  # the calls take a minute
            rest = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, *rest) == (0, "", "")


def test_terminate(command):
    with started(command, "terminate") as process:
        try:
            assert process.stdout.readline() == "waiting\n"
            process.terminate()
            rest = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, *rest) == (-signal.SIGTERM, "", "")


@pytest.mark.parametrize("again", range(3))
def test_exit(command, again):
    ran = wheels.attempt(*command, "leave", timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")
