"""Processes of both implementations, as the tests command them."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

from arrowdevice.share.loop import loop
from arrowdevice.share.worker import releaser, worker

HERE = pathlib.Path(__file__).resolve().parent
LANGUAGES = ["go", "python"]
LIMIT = 20  # seconds until a test that waits fails


class Refused(Exception):
    """An error of the other process: its class, and its text."""

    def __init__(self, name, text):
        super().__init__(f"{name}: {text}")
        self.name, self.text = name, text


class Process:
    """A peer in a language."""

    def __init__(self, language, driver=None, python=sys.executable):
        command = [os.environ["SHAREPEER"]] if language == "go" else [python, "-W", "error", str(HERE / "peer.py")]
        paths = [HERE, HERE.parent / "python", HERE.parent.parent / "python"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "CDEVICE_CUDA_DRIVER": driver or "none"}
        self.language = language
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def send(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def receive(self):
        said = self.process.stdout.readline().rstrip("\n")
        if not said:
            raise AssertionError(f"the {self.language} process has ended: {self.process.wait()}")
        if said.startswith("error "):
            _, name, text = said.split(" ", 2)
            raise Refused(name, json.loads(text) if self.language == "python" else text)
        return said

    def ask(self, *words):
        self.send(*words)
        return self.receive()

    def share(self, case="int32", variant="nulls", memory="host", openers=1):
        return bytes.fromhex(self.ask("share", case, variant, memory, openers))

    def open(self, ticket, seconds=LIMIT):
        return self.ask("open", "x" + ticket.hex(), seconds)

    def refuses(self, ticket, seconds=LIMIT):
        """The error of an opening."""
        try:
            said = self.open(ticket, seconds)
        except Refused as refused:
            return refused
        raise AssertionError(said)

    def held(self):
        return tuple(map(int, self.ask("held").split()))

    def holds_at_most(self, before):
        """Waits until there are no more descriptors and mappings than before."""
        eventually(lambda: all(now <= then for now, then in zip(self.held(), before)), "what was opened is closed")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.stdin.close()
        code = self.process.wait(LIMIT)
        self.process.stdout.close()
        return code


@contextlib.contextmanager
def process(language, **options):
    """A process, which must end well."""
    p = Process(language, **options)
    try:
        yield p
        assert p.end() == 0
    finally:
        p.kill()
        with contextlib.suppress(BrokenPipeError):
            p.process.stdin.close()
        p.process.stdout.close()


@contextlib.contextmanager
def program(text):
    """A process of Python with a text, which reads lines and must end well at the last one."""
    paths = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-W", "error", "-c", text]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}) as p:
        try:
            yield p
            p.stdin.close()
            assert p.wait(LIMIT) == 0
        finally:
            p.kill()


def settle():
    """Waits until the threads of this process have done what they were asked for, and what that has asked for."""
    worker.run(loop.start)
    for _ in range(3):
        releaser.run(int)
        worker.run(int)
        done = threading.Event()
        worker.run(loop.call, done.set)
        assert done.wait(LIMIT)


def eventually(holds, what="it"):
    """Waits until a function returns what is true, and returns that."""
    end = time.monotonic() + LIMIT
    while not (value := holds()):
        assert time.monotonic() < end, f"{what} did not come true"
        time.sleep(0.002)
    return value
