"""Copies the licences of what is linked into a Go program: python licences.py PACKAGE FOLDER. Needs arrowdevice in PYTHONPATH."""

import shutil
import sys
from pathlib import Path

from arrowdevice.build import golang

package = golang.find(sys.argv[1])
for path, file in golang.licences(package):
    copy = Path(sys.argv[2], "licenses", path)
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, copy)
