"""The code of other packages on the pages for those who come from there: it runs, with equal sets.

They are installed by the benchmarks (``make bench``); where they are not, there is nothing to run.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# `import torchcp` asks for much that nothing here touches; the benchmarks put stand-ins there.
FIRST = {"torchcp": "import benchmarks.contestants.torchcp"}
START = "import runpy, sys; {first}\nrunpy.run_path(sys.argv[1], run_name='__main__')"

pytestmark = pytest.mark.deep


@pytest.mark.parametrize("peer", ["mapie", "crepes", "torchcp"])
def test_the_same_sets_from_another_package(peer):
    packages = list((ROOT / ".cache" / "bench" / peer).glob("lib/python3*/site-packages"))
    if not packages:
        pytest.skip(f"{peer} is not installed by the benchmarks")
    script = ROOT / "examples" / "coming_from" / f"from_{peer}.py"
    done = subprocess.run(
        [sys.executable, "-c", START.format(first=FIRST.get(peer, "")), script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(packages[0]), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "rows with another set: 0 of" in done.stdout
