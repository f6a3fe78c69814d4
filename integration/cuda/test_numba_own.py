"""Numba's own tests of its use of the driver, without those that need a compiler for
kernels: they were written without knowledge of the simulator."""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import pytest

import machines
import simulator

# How many must pass. The others of a module need a compiler, a second device, Windows, ...
PASSING = {
    "cudadrv.test_array_attr": 11,
    "cudadrv.test_context_stack": 6,
    "cudadrv.test_cuda_array_slicing": 18,
    "cudadrv.test_cuda_auto_context": 1,
    "cudadrv.test_cuda_devicerecord": 9,
    "cudadrv.test_cuda_driver": 6,
    "cudadrv.test_cuda_memory": 15,
    "cudadrv.test_cuda_ndarray": 50,
    "cudadrv.test_deallocations": 14,
    "cudadrv.test_detect": 2,
    "cudadrv.test_emm_plugins": 6,
    "cudadrv.test_events": 2,
    "cudadrv.test_host_alloc": 4,
    "cudadrv.test_is_fp16": 2,
    "cudadrv.test_managed_alloc": 2,
    "cudadrv.test_pinned": 2,
    "cudadrv.test_profiler": 1,
    "cudadrv.test_reset_device": 1,
    "cudadrv.test_runtime": 3,
    "cudadrv.test_select_device": 1,
    "cudadrv.test_streams": 7,
    "cudapy.test_cuda_array_interface": 16,
    "cudapy.test_multigpu": 1,
    "cudapy.test_multithreads": 2,
}
ON_TWO_DEVICES = {**PASSING, "cudadrv.test_context_stack": 8, "cudadrv.test_runtime": 4, "cudapy.test_multigpu": 2}

# Features that the simulator lacks, so that the test cannot pass.
LACKING = {"test_visible_devices_set_after_import": "CUDA_VISIBLE_DEVICES is not looked at"}

# The message of a test that needs a compiler, or a program for the device.
NEEDS_A_COMPILER = "libnvvm.so: cannot open", "cuModuleLoadDataEx", "cuLinkCreate"


@functools.cache
def outcomes(machine):
    """The outcomes of all tests: {module: {test: (outcome, text)}}, and the driver's
    report. They run in one process, not in that of the machine: they reset devices."""
    with tempfile.TemporaryDirectory() as folder:
        path, report = pathlib.Path(folder, "outcomes.json"), pathlib.Path(folder, "report.json")
        # A test fills half of the memory.
        options = simulator.options(machines.MACHINES[machine], f"memory={256 << 20}", f"report={report}")
        process = subprocess.run(
            [sys.executable, "numba_own.py", path, *(f"numba.cuda.tests.{name}" for name in PASSING)],
            cwd=pathlib.Path(__file__).parent,
            env={**os.environ, "CUDASIM": options},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        assert process.returncode == 0, process.stdout
        return json.loads(path.read_text()), json.loads(report.read_text()) if report.exists() else None


@pytest.mark.parametrize("module", PASSING)
def test_of_numba(module, machine):
    tests = outcomes(machine)[0][f"numba.cuda.tests.{module}"]
    failed = {
        name: text
        for name, (outcome, text) in tests.items()
        if outcome == "failed" and not any(reason in text for reason in NEEDS_A_COMPILER)
    }
    lacking = {LACKING.get(name.rpartition(".")[2]) for name in failed}
    if failed and simulator.is_simulator and None not in lacking:
        pytest.xfail("; ".join(lacking))
    assert not failed, "\n\n".join(f"{name}\n{text}" for name, text in failed.items())
    if simulator.is_simulator:  # another machine has other features
        passed = [name for name, (outcome, _) in tests.items() if outcome == "passed"]
        assert len(passed) == (ON_TWO_DEVICES if machine == "two_devices" else PASSING)[module], passed


@pytest.mark.simulator
def test_numbas_tests_do_nothing_that_is_forbidden(machine):
    """But for two things that Numba may do. When a callback drops the last reference to
    a stream, the stream or another object that waits to be freed is destroyed there: it
    depends on which thread is faster. And it relies on the driver to read pageable
    memory before an asynchronous copy returns, which drivers do."""
    in_callback = re.compile(r"cu(StreamDestroy|EventDestroy|MemFree|MemFreeHost) called by a host function")
    pageable = re.compile(r"cuMemcpyHtoDAsync reads \d+ bytes of pageable memory .* that the host changed .*")
    allowed = [in_callback] + [pageable] * ("pageable_async=1" in machines.MACHINES[machine])
    violations = outcomes(machine)[1]["violations"]
    assert [v for v in violations if not any(pattern.fullmatch(v) for pattern in allowed)] == []
