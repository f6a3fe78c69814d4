"""The error of a build."""


class BuildError(Exception):
    """A wheel cannot be made. The text says why, and what to do."""
