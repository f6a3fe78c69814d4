"""What is alive in the Go library of the tests."""

import gc
import time

from abi import PACKAGE  # noqa: F401
from golib import PATH, ROOT, ext  # noqa: F401

import arrowdevice  # noqa: F401

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
    counters["sources in Python"] = ext._library.module.sources()
    return {name: count for name, count in counters.items() if count}


def settled():
    """The counters once they are at zero, or after a timeout: goroutines end a little later than calls."""
    deadline = time.monotonic() + PATIENCE
    while (now := alive()) and time.monotonic() < deadline:
        time.sleep(0.001)
    return now
