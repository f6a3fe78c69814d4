"""The program flightpeer, whose batches are on a GPU: a Flight server, or a client."""

import contextlib
import os
import subprocess

import pyarrow.flight as fl


def environment():
    driver = os.environ.get("CDEVICE_CUDA_DRIVER") or os.environ.get("DEVICE_DRIVER")
    return {**os.environ, "CDEVICE_CUDA_DRIVER": driver}


@contextlib.contextmanager
def server():
    """A client of PyArrow's for a server of Go's, which ends without leaks afterwards."""
    process = subprocess.Popen(
        [os.environ["FLIGHTPEER"], "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), text=True
    )
    try:
        address = process.stdout.readline().strip()
        with fl.connect(f"grpc://{address}") as client:
            yield client
        process.stdin.close()
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def client(address):
    """What a client of Go's prints that gets, puts and exchanges batches at an address."""
    done = subprocess.run(
        [os.environ["FLIGHTPEER"], "client", address], env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
