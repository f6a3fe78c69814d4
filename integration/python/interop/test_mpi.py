"""Columns of Go that mpi4py sends where they are, by DLPack, and columns that Go makes of
what it receives. MPICH comes from PyPI as mpi4py does, and runs without its launcher."""

import os
import pathlib
import subprocess
import sys


PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "mpiexchange.py"


def test_mpi4py_sends_columns_of_go():
    """MPICH is told to leave faults to Go, whose runtime handles them, and to use no network."""
    environment = {**os.environ, "UCX_ERROR_SIGNALS": "", "UCX_TLS": "self,shm"}
    ran = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, timeout=120, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith("10 types by MPI ")
