"""A library in child processes: it works where no parent has loaded it, and is an error in
a forked child of one that has."""

import os
import sys

import wheels

# A child of each kind, of a process that has loaded the library or has not.
CHILDREN = """
import multiprocessing
import os
import sys

import pyarrow as pa

import arrowdevice


def call(extension, path):
    extension = extension or arrowdevice.load(path)
    for _ in range(1000):  # the first ones may work in a forked child
        more = extension.add_running_total(pa.record_batch({"km": [1.0, 2.0]}), "km")
    return pa.record_batch(more)["km_total"].to_pylist()


def child(answers, extension, path):
    try:
        answers.put(call(extension, path))
    except RuntimeError as refused:
        answers.put(str(refused))


def ask(method, extension, path):
    context = multiprocessing.get_context(method)
    answers = context.SimpleQueue()
    process = context.Process(target=child, args=(answers, extension, path))
    process.start()
    process.join(60)
    assert process.exitcode == 0, f"{method}: {process.exitcode}"
    return answers.get()


if __name__ == "__main__":
    path = sys.argv[1]
    print(ask("fork", None, path))  # loaded in the child only
    extension = arrowdevice.load(path)
    print(call(extension, path))
    print(ask("spawn", None, path))
    print(ask("spawn", extension, path))
    print(ask("forkserver", None, path))
    print(ask("fork", extension, path))
    print(ask("fork", None, path))
    print(ask("fork", None, os.path.relpath(path)))
"""


def test_child_processes(tmp_path):
    program = tmp_path / "children.py"
    program.write_text(CHILDREN)
    path = os.environ["PYEXTENSION"]
    printed = wheels.run(sys.executable, program, path, env=wheels.variables())
    *works, by_object, again, by_other_name = printed.splitlines()
    assert works == ["[1.0, 3.0]"] * 5
    for refused in (by_object, again, by_other_name):
        assert refused.startswith(f"{os.path.realpath(path)}: loaded before this process was forked")
        assert 'get_context("spawn")' in refused
