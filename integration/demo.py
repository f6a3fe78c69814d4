"""A batch of a million orders goes from Go to PyArrow and back, from PyArrow to Go
and back, from Go to a GPU and back, and over Arrow Flight from PyArrow to a server whose batches are on a GPU, and back. The GPU is simulated where there is none. Run it as integration/run.sh --demo, which builds its parts first."""

import ctypes
import gc
import os
import pathlib
import platform
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "python"))

import pyarrow as pa
import pyarrow.flight

import abi
import flightpeer
import golib
import transfer

ROWS = 1_000_000
REPEATS = 21


def pyarrow_batch():
    """The batch of GoBatch.make_demo, made by PyArrow."""
    ends = [0]
    for i in range(ROWS):
        ends.append(ends[-1] + i % 4)
    items = pa.array([i + k for i in range(ROWS) for k in range(i % 4)], pa.int32())
    return pa.record_batch(
        {
            "order": pa.array(range(ROWS), pa.int64()),
            "price": pa.array([None if i % 10 == 9 else i % 1000 / 8 for i in range(ROWS)], pa.float64()),
            "customer": pa.array([f"customer {i % 5000}" for i in range(ROWS)]),
            "country": pa.DictionaryArray.from_arrays(
                pa.array([i % 4 for i in range(ROWS)], pa.int8()), ["Brazil", "Ghana", "Japan", "Norway"]
            ),
            "items": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items),
        }
    )


def zero_copy(*objects):
    """Whether all objects have all their buffers at the same addresses."""
    try:
        return all(transfer.same_memory(objects[0], other) > 0 for other in objects[1:])
    except transfer.NotShared:
        return False


def timed(work, repeats=REPEATS):
    """The median of how long work takes, in microseconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        work()
        times.append((time.perf_counter_ns() - start) / 1000)
    return statistics.median(times)


def go_and_back(go, protocol):
    def round_trip():
        with transfer.to_go(transfer.to_pyarrow(go, protocol), protocol, full_validation=False):
            pass

    arrow = transfer.to_pyarrow(go, protocol)
    arrow.validate(full=True)
    with transfer.to_go(arrow, protocol) as back:
        difference = back.difference(go)
        shape = back.describe()
        return {
            "direction": "Go -> PyArrow -> Go", "protocol": protocol, "device": shape["device"],
            "rows": shape["length"], "columns": len(shape["fields"]),
            "zero copy": zero_copy(go, arrow, back), "time": timed(round_trip), "equal": difference == "",
        }  # fmt: skip


def pyarrow_and_back(arrow, protocol):
    def round_trip():
        with transfer.to_go(arrow, protocol, full_validation=False) as go:
            transfer.to_pyarrow(go, protocol)

    with transfer.to_go(arrow, protocol) as go:
        back = transfer.to_pyarrow(go, protocol)
        back.validate(full=True)
        return {
            "direction": "PyArrow -> Go -> PyArrow", "protocol": protocol, "device": back.device_type.name.lower(),
            "rows": back.num_rows, "columns": back.num_columns,
            "zero copy": zero_copy(arrow, go, back), "time": timed(round_trip), "equal": back.equals(arrow),
        }  # fmt: skip


def copied(go):
    """CopyToHost, to show the savings of the others."""
    with go.copy_to_host() as copy:
        shape = copy.describe()
        return {
            "direction": "Go: a copy, to compare", "protocol": "-", "device": shape["device"],
            "rows": shape["length"], "columns": len(shape["fields"]),
            "zero copy": zero_copy(go, copy), "time": timed(lambda: go.copy_to_host().release()), "equal": copy.difference(go) == "",
        }  # fmt: skip


def gpu():
    """The name of the GPU that is used."""
    name = golib.ext.gpu_name(0)
    driver = ctypes.CDLL(os.environ.get("CDEVICE_CUDA_DRIVER", "libcuda.so.1"))
    simulated = hasattr(driver, "cudasim_report")
    return f"{name}: simulated in memory of the host, for want of a real one; its times say nothing" if simulated else name


def rows(go, i, j):
    with go.slice(i, j) as part:
        return part.values()


def gpu_and_back(go):
    """Copied to the GPU, passed on in C structs with the event of that copy, and copied
    to the host by the consumer, which waits for the event."""

    def round_trip():
        with go.copy_to(abi.CUDA) as on_device, golib.GoBatch.from_arrow(on_device) as taken:
            taken.copy_to_host().release()

    with go.copy_to(abi.CUDA) as on_device, golib.GoBatch.from_arrow(on_device) as taken, taken.copy_to_host() as back:
        shape = taken.describe()
        return {
            "direction": "Go -> GPU -> C -> Go -> host", "protocol": "capsule", "device": shape["device"],
            "rows": shape["length"], "columns": len(shape["fields"]),
            "zero copy": zero_copy(go, back), "time": timed(round_trip), "equal": back.difference(go) == "",
        }, rows(back, 9, 12)  # fmt: skip


def flight_and_back(arrow):
    """Put over Arrow Flight to a process of Go's, which keeps it on a GPU, and got from there."""
    descriptor = pa.flight.FlightDescriptor.for_path("demo")
    with flightpeer.server() as client:

        def round_trip():
            writer, answer = client.do_put(descriptor, arrow.schema)
            with writer:
                writer.write_batch(arrow)
                writer.done_writing()
                answer.read()
            return client.do_get(pa.flight.Ticket(b"demo")).read_all()

        back = round_trip().combine_chunks()
        return {
            "direction": "PyArrow -> Go on the GPU -> PyArrow", "protocol": "Flight", "device": "cuda",
            "rows": back.num_rows, "columns": back.num_columns,
            "zero copy": False, "time": timed(round_trip, 3), "equal": back.equals(pa.Table.from_batches([arrow])),
        }  # fmt: skip


def readable(row):
    microseconds = row["time"]
    return {
        **row,
        "rows": f"{row['rows']:,}",
        "columns": str(row["columns"]),
        "zero copy": "yes" if row["zero copy"] else "no",
        "time": f"{microseconds:.0f} µs" if microseconds < 1000 else f"{microseconds / 1000:.1f} ms",
    }


def print_table(rows):
    titles = ["direction", "protocol", "device", "rows", "columns", "zero copy", "time"]
    right = {"rows", "columns", "time"}
    lines = [{title: title for title in titles}, *map(readable, rows)]
    widths = {title: max(len(line[title]) for line in lines) for title in titles}
    for i, line in enumerate(lines):
        print("  ".join(line[t].rjust(widths[t]) if t in right else line[t].ljust(widths[t]) for t in titles).rstrip())
        if i == 0:
            print("  ".join("-" * widths[t] for t in titles))


def alive():
    gc.collect()
    golib.ext.free_memory()
    golib.ext.trim_gpu(0)
    return {"PyArrow bytes": pa.total_allocated_bytes(), **golib.stats(), **golib.ext.read_gpu_stats(0)}


def transfers():
    arrow = pyarrow_batch()
    with golib.GoBatch.make_demo(ROWS) as go:
        columns = ", ".join(f"{field.name} {field.type}" for field in arrow.schema)
        print(f"PyArrow {pa.__version__}, Python {platform.python_version()}; {arrow.nbytes / 1e6:.0f} MB: {columns}\n")
        there_and_back = [go_and_back(go, protocol) for protocol in transfer.PROTOCOLS]
        there_and_back += [pyarrow_and_back(arrow, protocol) for protocol in transfer.PROTOCOLS]
        return there_and_back, copied(go), *gpu_and_back(go), flight_and_back(arrow)


def main():
    name = gpu()
    before = alive()
    there_and_back, copy, device, sample, flight = transfers()
    print_table([*there_and_back, copy, device, flight])
    print(f"\nGPU: {name}.\nThree rows that were there:")
    for row in sample:
        print(f"  {row}")
    leaked = {name: now - before[name] for name, now in alive().items() if now != before[name]}

    wrong = [f"{row['direction']} by {row['protocol']}: the values differ" for row in there_and_back if not row["equal"]]
    wrong += [f"{row['direction']} by {row['protocol']}: copied" for row in there_and_back if not row["zero copy"]]
    wrong += [f"leaked: {count} {name}" for name, count in leaked.items()]
    wrong += [f"{row['direction']}: not a copy, or not equal" for row in (copy, device, flight) if not row["equal"] or row["zero copy"]]
    print()
    if wrong:
        sys.exit("\n".join(wrong))
    print("Equal on both sides; nothing leaked: all counters of Go, of PyArrow and of the GPU are where they began.")


if __name__ == "__main__":
    main()
