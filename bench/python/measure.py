"""Calls of Go, C and Rust from Python, in one process, turn by turn.

    measure.py FOLDER ROUNDS MILLISECONDS [OPERATION]

FOLDER has what build.sh builds. A turn takes so many milliseconds; the best of each side count, since other load of the machine
makes turns longer only. Prints JSON: versions, and the rows of bench/report.go; with OPERATION, only those of it."""

import ctypes
import importlib.metadata
import itertools
import json
import pathlib
import re
import subprocess
import sys
import threading
import time

import pyarrow as pa

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "python"
OURS, C, PYO3, NANOBIND, CGO, PYARROW = "arrowdevice", "C extension", "PyO3", "nanobind", "ctypes + cgo", "PyArrow's export"
ROWS = 1000


class Ctypes:
    """Package cdata behind ctypes: what a program does without a library for it."""

    def __init__(self, path):
        functions = ctypes.CDLL(str(path))
        self.empty, self.add, self._rows, self._rows_of_stream = map(
            functions.__getattr__, ("empty", "add", "rows", "rows_of_stream")
        )
        self.empty.restype = None
        self.add.argtypes, self.add.restype = [ctypes.c_int64, ctypes.c_int64], ctypes.c_int64
        self._rows.argtypes, self._rows.restype = [ctypes.c_void_p, ctypes.c_void_p], ctypes.c_int64
        self._rows_of_stream.argtypes, self._rows_of_stream.restype = [ctypes.c_void_p], ctypes.c_int64
        self._pointer = ctypes.pythonapi.PyCapsule_GetPointer
        self._pointer.argtypes, self._pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p

    def rows(self, batch):
        schema, array = batch.__arrow_c_array__()
        return self._rows(self._pointer(schema, b"arrow_schema"), self._pointer(array, b"arrow_array"))

    def rows_of_stream(self, stream):
        capsule = stream.__arrow_c_stream__()
        return self._rows_of_stream(self._pointer(capsule, b"arrow_array_stream"))


# How a program loads each side.
LOADERS = {
    OURS: "import arrowdevice; side = arrowdevice.load({folder!r} + '/libcalls.so')",
    C: "import by_c as side",
    PYO3: "import by_pyo3 as side",
    NANOBIND: "import by_nanobind as side",
    CGO: "import ctypes; side = ctypes.CDLL({folder!r} + '/libcgo.so')",
}


def load(folder):
    """The sides that are there."""
    sides = {}
    for name, loader in LOADERS.items():
        try:
            names = {}
            exec(loader.format(folder=folder), names)
            sides[name] = names["side"]
        except (ImportError, OSError) as error:
            print(f"without calls by {name}, which bench/python/build.sh builds: {error}", file=sys.stderr)
    if CGO in sides:
        sides[CGO] = Ctypes(f"{folder}/libcgo.so")
    return sides


def loop(expression, want, **names):
    """A function that evaluates an expression so many times. Its value is compared once."""
    names["repeat"] = itertools.repeat
    got = eval(expression, names)
    if want is not ... and got != want:
        raise RuntimeError(f"{expression} is {got!r}, not {want!r}")
    exec(f"def loop(_):\n for _ in repeat(None, _):\n  {expression}", names)
    return names["loop"]


def on_threads(do, threads):
    """A function that does it on threads, each as often as asked for."""

    def run(n):
        workers = [threading.Thread(target=do, args=(n,)) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    return run


def timed(do, n):
    """Nanoseconds, and those of the processors."""
    start, cpu = time.perf_counter_ns(), time.process_time_ns()
    do(n)
    return time.perf_counter_ns() - start, time.process_time_ns() - cpu


def calibrate(do, turn):
    """How often it is done in a turn."""
    n = 1
    while (took := min(timed(do, n)[0] for _ in range(3))) < turn / 2:
        n *= 2
    return max(1, round(n * turn / took))


def in_turns(sides, rounds, turn):
    """The best time of each side, and of its processors."""
    counts = {name: calibrate(do, turn) for name, do in sides.items()}
    times = {name: [] for name in sides}
    for _ in range(rounds):
        for name, do in sides.items():
            times[name].append([took / counts[name] for took in timed(do, counts[name])])
    return {name: [min(of_side) for of_side in zip(*all_of_side)] for name, all_of_side in times.items()}


def result(operation, columns, ours, peer, theirs):
    """A row. Where nobody else has the operation, it is beside ours."""
    return {
        "operation": operation,
        "shape": "int64" if columns else "",
        "columns": columns,
        "ns": ours[0],
        "cpu_ns": ours[1],
        "peer": peer,
        "peer_ns": theirs[0],
        "peer_cpu_ns": theirs[1],
        "ratio": theirs[0] / ours[0],
        "cpu_ratio": theirs[1] / max(ours[1], 1),
    }


def calls(sides):
    """The calls: the name of each, the columns of its batch, and how each side does it."""
    batch = pa.record_batch({"a": pa.array(range(ROWS), pa.int64())})
    table = pa.Table.from_batches([batch])

    def generate():
        yield batch

    reader = pa.RecordBatchReader.from_batches
    yield "empty()", 0, {name: loop("f()", None, f=side.empty) for name, side in sides.items()}
    yield "add(1, 2)", 0, {name: loop("f(1, 2)", 3, f=side.add) for name, side in sides.items()}
    own = {name: (side.rows, side.batch(ROWS)) for name, side in sides.items() if hasattr(side, "batch")}
    yield "rows(own batch)", 1, {name: loop("f(a)", ROWS, f=f, a=a) for name, (f, a) in own.items()}
    yield "rows(PyArrow's batch)", 1, {
        **{name: loop("f(a)", ROWS, f=side.rows, a=batch) for name, side in sides.items()},
        PYARROW: loop("a.__arrow_c_array__()", ..., a=batch),
    }
    yield "rows(stream of one batch)", 1, {
        **{name: loop("f(a)", ROWS, f=side.rows_of_stream, a=table) for name, side in sides.items()},
        PYARROW: loop("a.__arrow_c_stream__()", ..., a=table),
    }
    # Only ours takes a generator: PyArrow makes a stream of it for the others.
    yield "rows(generator of one batch)", 1, {
        name: loop("f(g())", ROWS, f=side.rows_of_stream, g=generate)
        if name == OURS
        else loop("f(r(s, g()))", ROWS, f=side.rows_of_stream, r=reader, s=batch.schema, g=generate)
        for name, side in sides.items()
    }


THREADS = [1, 2, 4, 8]
STEPS = 10_000  # of spin, which take some 20 µs


def by_threads(sides):
    """The calls on threads: the name of each, and how each side does it."""
    sides = {name: side for name, side in sides.items() if name in (OURS, PYO3)}
    yield "empty()", {name: loop("f()", None, f=side.empty) for name, side in sides.items()}
    yield "20 µs without the GIL", {name: loop("f(n)", ..., f=side.spin, n=STEPS) for name, side in sides.items()}


def measure_calls(sides, rounds, turn, wanted):
    for name, columns, done in calls(sides):
        operation = f"Python: {name}"
        if wanted(operation):
            times = in_turns(done, rounds, turn)
            peers = [peer for peer in done if peer != OURS]
            yield from (result(operation, columns, times[OURS], peer, times[peer]) for peer in peers or [OURS])


def measure_threads(sides, rounds, turn, wanted):
    for name, done in by_threads(sides):
        operations = {n: f"Python: {name}, {n} threads" for n in THREADS[1:]}
        if not any(map(wanted, operations.values())):
            continue
        do = {(side, n): on_threads(done[side], n) for n in THREADS for side in done}
        # The start of threads is to count little. A time is that of one call, of all threads.
        times = {of: [t / of[1] for t in best] for of, best in in_turns(do, rounds, 4 * turn).items()}
        for n, operation in operations.items():
            ours = times[OURS, n]
            yield result(operation, 0, ours, "1 thread", times[OURS, 1])
            if PYO3 in done:
                yield result(operation, 0, ours, PYO3, times[PYO3, n])
                yield result(operation, 0, ours, f"{PYO3}, 1 thread", times[PYO3, 1])


def measure_imports(folder, sides, rounds, wanted):
    """Each in a process of its own, which has imported nothing before."""
    operation = "Python: import"
    if not wanted(operation):
        return
    program = (
        "import sys, time; sys.path[:0] = {path!r}; start, cpu = time.perf_counter_ns(), time.process_time_ns(); {loader}; "
        "print(time.perf_counter_ns() - start, time.process_time_ns() - cpu)"
    )

    def once(name):
        source = program.format(path=[folder, str(PACKAGE)], loader=LOADERS[name].format(folder=folder))
        out = subprocess.run([sys.executable, "-I", "-c", source], check=True, capture_output=True, text=True).stdout
        return [int(number) for number in out.split()]

    turns = [{name: once(name) for name in sides} for _ in range(rounds + 1)][1:]  # the first one reads the files
    best = {name: [min(turn[name][k] for turn in turns) for k in range(2)] for name in sides}
    yield from (result(operation, 0, best[OURS], peer, best[peer]) for peer in sides if peer != OURS)


def versions(sides):
    found = {"PyArrow": pa.__version__}
    if NANOBIND in sides:
        found["nanobind"] = importlib.metadata.version("nanobind")
    if PYO3 in sides:
        lock = (HERE / "rust" / "Cargo.lock").read_text()
        for shown, crate in ((PYO3, "pyo3"), ("pyo3-arrow", "pyo3-arrow")):
            found[shown] = re.search(rf'name = "{crate}"\nversion = "(.*)"', lock)[1]
    return found


def main(folder, rounds, milliseconds, only=None):
    sys.path[:0] = [folder, str(PACKAGE)]
    sides = load(folder)
    rounds, turn = int(rounds), float(milliseconds) * 1e6

    def wanted(operation):
        return only is None or operation == only

    rows = [
        *measure_calls(sides, rounds, turn, wanted),
        *measure_threads(sides, rounds, turn, wanted),
        *measure_imports(folder, sides, rounds, wanted),
    ]
    json.dump({"python": sys.version.split()[0], "peers": versions(sides), "rows": rows}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
