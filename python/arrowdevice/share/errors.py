"""The errors of this package, which have the names of Go's without Err."""

from __future__ import annotations


class ShareError(Exception):
    """The base class of the errors of this package."""


class BadTicket(ShareError, ValueError):
    """The bytes are not a ticket, or were truncated or changed; the text names the field."""


class OtherHost(ShareError):
    """The ticket is from another machine, or from before the last boot of this one."""


class OtherUser(ShareError, PermissionError):
    """The process at the other end belongs to another user: run both as one user, in one user namespace."""


class OtherNetwork(ShareError, ConnectionError):
    """The owner is in another network namespace, so its socket cannot be reached."""


class SameProcess(ShareError):
    """This process issued the ticket, and has the batch."""


class OwnerGone(ShareError, ConnectionError):
    """The issuing process has exited, or has stopped sharing since it issued the ticket."""


class Used(ShareError):
    """The ticket was opened as often as its owner allows, or was closed, and its owner still shares other batches."""


class NotShareable(ShareError, ValueError):
    """Other processes cannot open the data, and it cannot be copied to where they can."""


class NotSupported(ShareError, NotImplementedError):
    """The system is not Linux, it has no CUDA driver, or no GPU of the ticket is visible to this process."""
