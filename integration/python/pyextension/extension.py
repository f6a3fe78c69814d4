"""The library of integration/pyextension, and what is alive in it."""

import gc
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = str(ROOT / "python")
PATH = os.environ.get("TESTEXTENSION", str(ROOT / "build" / "libtestextension.so"))

sys.path.insert(0, PACKAGE)

import arrowdevice  # noqa: E402
from arrowdevice import _capsules, _sources  # noqa: E402, F401

ext = arrowdevice.load(PATH)

PATIENCE = 60  # seconds until an object that is not released counts as a leak


def alive():
    """The counters of both sides that are not zero."""
    gc.collect()
    ext.gc()
    counters = {name: count for name, count in ext._library.ask(".stats").items() if count}
    python = {
        "sources": _sources.alive(),
        "handles": len([r for r in ext._library.objects if not r().closed]),
        "running": len(ext._library.running),
        "pipes": len(ext._library.pipes),
    }
    return {**counters, **{name: count for name, count in python.items() if count}}


def settled():
    """The counters once they are at zero, or after a timeout: goroutines end a little later than calls."""
    deadline = time.monotonic() + PATIENCE
    while (now := alive()) and time.monotonic() < deadline:
        time.sleep(0.001)
    return now
