"""What it costs to hand batches to a trainer in another process: shared memory, pickling over a pipe, and Arrow Flight, side by side.

    examples/training/run.sh --compare [MEGABYTES...]

Each producer has the data in its memory, and for each batch copies them to the memory of a batch, as a loader does that
decodes; the consumer adds up each column. Producers are at most one batch ahead. The figure is the time from batch to batch, the
median of ROUNDS runs, in which the three take turns.
"""

import multiprocessing
import statistics
import sys
import time

import numpy as np
import pyarrow as pa

import train

ROUNDS = 5
NAMES = ["x0", "x1", "x2", "y"]


def consume(batches):
    """Reads all batches, and returns the seconds for each but the first, which waits for the process to start."""
    begin, count = 0.0, 0
    for batch in batches:
        for column in batch.columns:
            np.add.reduce(column.to_numpy(zero_copy_only=True))
        count += 1
        if count == 1:
            begin = time.perf_counter()
    return (time.perf_counter() - begin) / (count - 1)


def produced(rows, count):
    """Yields batches, two of which have memory of their own."""
    data = np.random.default_rng(1).random(4 * rows, np.float32)
    slots = [np.empty_like(data), np.empty_like(data)]
    for i in range(count):
        slot = slots[i % 2]
        np.copyto(slot, data)
        yield pa.record_batch([pa.array(slot[rows * k : rows * (k + 1)]) for k in range(4)], names=NAMES)


def shared(rows, count):
    return consume(train.batches(rows, count))


def _send(pipe, rows, count):
    for batch in produced(rows, count):
        pipe.send(batch)


def pickled(rows, count):
    """By multiprocessing.Pipe, as the DataLoader of PyTorch does for objects that are no tensors."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, rows, count))
    process.start()
    sender.close()
    seconds = consume(receiver.recv() for _ in range(count))
    process.join()
    return seconds


def _serve(pipe, rows, count):
    from pyarrow import flight

    class Server(flight.FlightServerBase):
        def do_get(self, context, ticket):
            schema = pa.schema([(name, pa.float32()) for name in NAMES])
            return flight.GeneratorStream(schema, produced(rows, count))

    with Server("grpc://127.0.0.1:0") as server:
        pipe.send(server.port)
        pipe.recv()


def flown(rows, count):
    """By Arrow Flight, of PyArrow at both ends."""
    from pyarrow import flight

    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, rows, count))
    process.start()
    with flight.connect(f"grpc://127.0.0.1:{here.recv()}") as client:
        reader = client.do_get(flight.Ticket(b""))
        seconds = consume(chunk.data for chunk in reader)
    here.send("end")
    process.join()
    return seconds


WAYS = {"shared": shared, "pickled": pickled, "Flight": flown}


def compare(megabytes, rounds=ROUNDS):
    """The median seconds for a batch, by way."""
    rows = megabytes * 1_000_000 // 16
    count = max(4, 400 // max(megabytes, 1)) if megabytes < 100 else 4
    times = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, way in WAYS.items():
            times[name].append(way(rows, count))
    return {name: statistics.median(values) for name, values in times.items()}


def main(*sizes):
    print("| batch | shared | pickled | Flight | pickled / shared | Flight / shared |\n|---|---|---|---|---|---|")
    for megabytes in map(int, sizes or (1, 16, 256)):
        t = compare(megabytes)
        cells = [f"{t[name] * 1000:.2f} ms" for name in WAYS]
        ratios = [f"{t[name] / t['shared']:.1f}" for name in ("pickled", "Flight")]
        print(f"| {megabytes} MB | {' | '.join(cells + ratios)} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
