"""The example in examples/pyextension works as documented. It runs in a process of its
own: two Go runtimes do not belong in one."""

import os
import pathlib
import subprocess
import sys

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples" / "pyextension" / "use.py"


def test_python_extension():
    ran = subprocess.run([sys.executable, EXAMPLE, os.environ["PYEXTENSION"]], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "km_total: 12.5, 12.5, 15.5; city was not copied; nothing is left\n"


# A child of each kind, of a process that has loaded the library or has not.
CHILDREN = """
import multiprocessing
import os
import sys

import pyarrow as pa

import use


def call(extension, path):
    extension = extension or use.Extension(path)
    for _ in range(1000):  # the first ones may work in a forked child
        more = extension.add_running_total(pa.record_batch({"km": [1.0, 2.0]}), "km")
    return more["km_total"].to_pylist()


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
    extension = use.Extension(path)
    print(call(extension, path))
    print(ask("spawn", None, path))
    print(ask("forkserver", None, path))
    print(ask("fork", extension, path))
    print(ask("fork", None, path))
    print(ask("fork", None, os.path.relpath(path)))
"""


def test_python_extension_in_child_processes(tmp_path):
    """A forked child of a process that has loaded the library gets an error; it used to hang."""
    program = tmp_path / "children.py"
    program.write_text(CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLE.parent)}
    path = os.environ["PYEXTENSION"]
    ran = subprocess.run([sys.executable, program, path], capture_output=True, text=True, timeout=120, env=environment)
    assert ran.returncode == 0, ran.stderr
    *works, by_object, again, by_other_name = ran.stdout.splitlines()
    assert works == ["[1.0, 3.0]"] * 4
    for refused in (by_object, again, by_other_name):
        assert refused.startswith(f"{os.path.realpath(path)}: loaded before this process was forked")
        assert 'get_context("spawn")' in refused
