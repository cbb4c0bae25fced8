"""The AVX-512 kernels give the same bits as the reference, also on machines without AVX-512.

Their source is compiled with portable code in the place of each instruction. So it is their logic
that is tested, not what a compiler makes of it for such a machine.
"""

import shutil
from pathlib import Path

import pytest
from kernels.builds import built, run_kernel_tests

COMPILER = Path(__file__).parent / "emulated" / "compiler.py"
pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(not shutil.which("g++"), reason="no compiler"),
    pytest.mark.skipif(
        not Path("/usr/include/simde/x86/avx512.h").exists(), reason="needs SIMDe (libsimde-dev)"
    ),
]


def test_avx_512_without_avx_512(tmp_path):
    folder = built(tmp_path, CMAKE_CXX_COMPILER=str(COMPILER))
    names, done = run_kernel_tests(folder)
    assert names == ["avx512", "avx2", "baseline"]
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    assert " passed" in done.stdout
