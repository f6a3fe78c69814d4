"""Batches between processes of one machine, without copying them: the protocol of Go's package share, in pure Python.

    batch = arrowdevice.share.open(ticket)     # of a Go program, or of another one in Python
    table = pyarrow.table(batch)               # the same memory
    batch.close()                              # with the last of what was taken from it, the owner is notified

    shared = arrowdevice.share.share(table)    # copies it, unless it is in memory of allocate()
    send(shared.ticket)
    shared.wait()                              # until the other process has released it

It works on Linux. The other process must belong to the same user. Opened memory is read-only on the host; memory of a GPU has no
such protection, and must not be written.
"""

from __future__ import annotations

from .errors import (
    BadTicket,
    NotShareable,
    NotSupported,
    OtherHost,
    OtherNetwork,
    OtherUser,
    OwnerGone,
    SameProcess,
    ShareError,
    Used,
)
from .memory import allocate
from .opener import RecordBatch, open
from .owner import Shared, share

__all__ = [
    "BadTicket",
    "NotShareable",
    "NotSupported",
    "OtherHost",
    "OtherNetwork",
    "OtherUser",
    "OwnerGone",
    "RecordBatch",
    "SameProcess",
    "ShareError",
    "Shared",
    "Used",
    "allocate",
    "open",
    "share",
]
