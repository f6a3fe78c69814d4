"""Comparisons whose errors are one line."""

import numpy as np


def equal(got, want):
    """The same values of the same type."""
    got, want = np.asarray(got), np.asarray(want)
    if got.dtype != want.dtype or got.shape != want.shape:
        raise AssertionError(f"{got.dtype} {got.shape}, want {want.dtype} {want.shape}")
    wrong = np.flatnonzero(got.reshape(-1) != want.reshape(-1))
    if len(wrong):
        i = wrong[0]
        first = f"element {i} is {got.reshape(-1)[i]}, want {want.reshape(-1)[i]}"
        raise AssertionError(f"{len(wrong)} of {got.size} values are wrong: {first}")


def same(got, want, what):
    if got != want:
        raise AssertionError(f"{what} {got}, want {want}")
