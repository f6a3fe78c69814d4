"""A process that shares and opens batches as it is told: what the program peer in Go is, with the same commands."""

import json
import os
import sys
import threading
import traceback

import pyarrow as pa

import arrays
from arrowdevice import share

CASES = dict(arrays._all())


class Peer:
    def __init__(self):
        self.shared, self.opened, self.is_gone = None, [], threading.Semaphore(0)

    def share(self, name, variant, where, openers):
        assert where == "host", "only Go shares memory of a GPU"
        self.shared = share.share(record(name, variant), openers=int(openers))
        return self.shared.ticket.hex()

    def close(self):
        self.shared.close()
        return "closed"

    def openers(self):
        return self.shared.openers

    def wait(self, seconds):
        self.shared.wait(float(seconds))
        return "released"

    def open(self, ticket, seconds):
        data = bytes.fromhex(ticket.removeprefix("x"))
        self.opened.append(share.open(data, timeout=float(seconds), owner_gone=self.is_gone.release))
        return f"opened {len(self.opened[-1])}"

    def compare(self, name, variant):
        got, want = pa.record_batch(self.opened[-1]), record(name, variant)
        if len(got):  # PyArrow finds fault with slices of views that are empty
            got.validate(full=True)
        if got.schema.equals(want.schema, check_metadata=True) and got.equals(want):
            return "equal"
        return f"got {got.schema}: {got}, want {want.schema}: {want}".replace("\n", " ")

    def metadata(self):
        return self.opened[-1].metadata

    def release(self):
        while self.opened:
            self.opened.pop().close()
        return "released"

    def keep(self):
        """What is alive when the process ends."""
        self.kept = [pa.table(self.opened[-1]), self.opened[-1].__arrow_c_array__()]
        return "kept"

    def gone(self):
        self.is_gone.acquire()
        return "gone"

    def held(self):
        with open("/proc/self/maps") as maps:
            return f"{len(os.listdir('/proc/self/fd'))} {maps.read().count('/memfd:arrowdevice')}"


def record(name, variant):
    """The batch of a case: of columns a and b, with metadata."""
    column = CASES[name].array(variant)
    fields = [pa.field("a", column.type, metadata={"of": "field"}), pa.field("b", column.type)]
    return pa.record_batch([column, column], schema=pa.schema(fields, metadata={"of": "schema"}))


def class_of(error):
    if isinstance(error, share.ShareError):
        return type(error).__name__
    return "Timeout" if isinstance(error, TimeoutError) else "Error"


def ended(unraisable):
    """What nobody can catch, such as a socket that the collector of garbage has closed, ends the process."""
    sys.__unraisablehook__(unraisable)
    os._exit(70)


def main():
    sys.unraisablehook = ended
    peer = Peer()
    for line in sys.stdin:
        command, *arguments = line.split()
        try:
            said = getattr(peer, command)(*arguments)
        except Exception as error:
            said = f"error {class_of(error)} {json.dumps(str(error))}"
            if not isinstance(error, (OSError, share.ShareError)):
                traceback.print_exc()
            error = None
        print(said, flush=True)


if __name__ == "__main__":
    main()
