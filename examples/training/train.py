"""Trains a model on batches of a loader in Go, which is another process, in the loader's memory.

    examples/training/run.sh [ROWS [BATCHES]]
"""

import os
import subprocess
import sys
import threading
import warnings

import numpy as np
import pyarrow as pa
from arrowdevice import share

try:
    import torch
except ImportError:
    torch = None


def batches(rows, count):
    """Yields the batches of the loader, which fills the memory of one again once nobody has a part of it: keep no more than one
    when you ask for the next."""
    loader = subprocess.Popen([os.environ["LOADER"], str(rows), str(count)], stdout=subprocess.PIPE, text=True)
    threading.Thread(target=loader.wait, daemon=True).start()  # it ends when the last batch is released
    with loader.stdout:
        for _ in range(count):
            ticket = loader.stdout.readline()
            if not ticket:
                raise RuntimeError(f"the loader has failed: {loader.wait()}")
            with share.open(bytes.fromhex(ticket)) as opened:
                batch = pa.record_batch(opened)  # the same memory
            yield batch
            del batch


def columns(batch):
    """The columns as arrays of NumPy, or tensors of PyTorch, in the same memory: do not write to them."""
    arrays = [column.to_numpy(zero_copy_only=True) for column in batch.columns]
    if torch is None:
        return arrays
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the arrays are read-only
        return [torch.from_numpy(array) for array in arrays]


def train(rows, count, rate=3.0):
    """The weights of a linear model after one step for each batch."""
    weights = np.zeros(3, np.float32)
    for batch in batches(rows, count):
        *xs, y = columns(batch)
        error = sum(float(w) * x for w, x in zip(weights, xs)) - y
        weights -= rate * np.array([float((error * x).mean()) for x in xs], np.float32)
        del xs, y, error  # parts of this batch
    return weights


def main(rows="1000000", count="50"):
    weights = train(int(rows), int(count))
    print("y =", " + ".join(f"{w:.2f} x{i}" for i, w in enumerate(weights)))


if __name__ == "__main__":
    main(*sys.argv[1:])
