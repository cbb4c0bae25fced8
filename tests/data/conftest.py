"""Every reader is tried with blocks of several sizes."""

import pytest
from inputs import K

import evencover.data.readers as source_module


@pytest.fixture(params=[None, 1, 3 * K, 5 * K + 1], ids=lambda n: f"blocks-{n}")
def block_elements(request, monkeypatch):
    """Whole files, single rows, and block sizes that do not divide the file."""
    if request.param is not None:
        monkeypatch.setattr(source_module, "BLOCK_ELEMENTS", request.param)
    return request.param
