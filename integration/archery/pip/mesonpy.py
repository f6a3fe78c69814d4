"""A build backend that has a name and a version and builds nothing.

pip asks the backend of a source archive for its metadata even to download it. nanoarrow's is
mesonpy, which compiles the package for that. NANOARROW_VERSION is the version.
"""

import os
import pathlib


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    version = os.environ["NANOARROW_VERSION"]
    name = f"nanoarrow-{version}.dist-info"
    folder = pathlib.Path(metadata_directory) / name
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: nanoarrow\nVersion: {version}\n")
    return name
