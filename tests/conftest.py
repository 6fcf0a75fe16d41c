import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with real data sets and encoders, or a skip."""
    folder = os.environ.get("ENCODERY_DATA")
    if not folder or not Path(folder, "glue").is_dir():
        pytest.skip("ENCODERY_DATA does not name a folder with real data")
    return Path(folder)
