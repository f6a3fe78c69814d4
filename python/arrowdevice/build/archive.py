"""Writes a wheel: the same bytes for the same files."""

import base64
import csv
import hashlib
import io
import os
import time
import zipfile

_LIBRARIES = (".so", ".dylib")


def write(path, files, info):
    """Writes files, a dict of paths and bytes, to a wheel. Those in the folder info come last, and RECORD, which is
    made here, after them."""
    ordered = sorted(files, key=lambda name: (name.startswith(info + "/"), name))
    record = f"{info}/RECORD"
    made = time.gmtime(date())[:6]
    with zipfile.ZipFile(path, "w") as archive:
        for name in ordered:
            _add(archive, name, files[name], made)
        _add(archive, record, _record(ordered, files, record), made)


def _add(archive, name, content, made):
    entry = zipfile.ZipInfo(name, made)
    entry.create_system = 3  # Unix, whose modes follow
    entry.external_attr = (0o100755 if name.endswith(_LIBRARIES) else 0o100644) << 16
    archive.writestr(entry, content, zipfile.ZIP_DEFLATED)


def _record(ordered, files, record):
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    for name in ordered:
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
        lines.writerow([name, f"sha256={digest}", len(files[name])])
    lines.writerow([record, "", ""])
    return text.getvalue().encode()


_FIRST = 315532800  # 1980, when the dates of archives begin


def date():
    """In seconds: SOURCE_DATE_EPOCH, or the first date that an archive can have."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    return max(int(seconds), _FIRST) if seconds.isdecimal() else _FIRST
