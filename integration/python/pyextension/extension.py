"""What is alive in the Go library of the tests."""

import gc
import time

from abi import PACKAGE  # noqa: F401
from golib import PATH, ROOT, ext  # noqa: F401

import arrowdevice  # noqa: F401
from arrowdevice import _capsules, _sources  # noqa: F401

PATIENCE = 60  # seconds until an object that is not released counts as a leak


def alive():
    """The counters of both sides that are not zero."""
    if counted():  # some of it may be garbage
        gc.collect()
        ext.gc()
    return counted()


def counted():
    """Those counters, and what is garbage besides."""
    counters = {**ext._library.ask(".stats"), **ext.stats()}
    python = {
        "sources_in_python": _sources.alive(),
        "python_handles": len([r for r in ext._library.objects if not r().closed]),
        "running": len(ext._library.running),
        "pipes": len(ext._library.pipes),
    }
    return {name: count for name, count in {**counters, **python}.items() if count}


def settled():
    """The counters once they are at zero, or after a timeout: goroutines end a little later than calls."""
    deadline = time.monotonic() + PATIENCE
    while (now := alive()) and time.monotonic() < deadline:
        time.sleep(0.001)
    return now
