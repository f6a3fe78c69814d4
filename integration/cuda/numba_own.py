"""Runs Numba's own tests, which are in the package, and writes the outcome of each as
JSON: python numba_own.py PATH MODULE..."""

import importlib
import json
import sys
import unittest


class Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.outcomes = {}

    def _note(self, test, outcome, text=""):
        self.outcomes[test.id()] = outcome, text

    def addSuccess(self, test):
        self._note(test, "passed")

    def addSkip(self, test, reason):
        self._note(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        self._note(test, "skipped", "expected failure")

    def addFailure(self, test, err):
        self._note(test, "failed", self._exc_info_to_string(err, test))

    addError = addFailure


def main(path, *modules):
    outcomes = {}
    for name in modules:
        result = Result()
        unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(name)).run(result)
        outcomes[name] = result.outcomes
    with open(path, "w") as f:
        json.dump(outcomes, f)


if __name__ == "__main__":
    main(*sys.argv[1:])
