"""Build wheels and test them as a user installs them.

    python scripts/build_wheels.py            (make wheels)

Build a source archive; from it one wheel for Python 3.11 and one for 3.12 and later (stable ABI),
if these interpreters exist, repaired by auditwheel and checked by abi3audit; one by clang, if
available; and the pure-Python wheel of a machine without a compiler. Install each in a new
environment whose PATH has neither compiler nor CMake, and run README there. Test the stable-ABI
wheel with every later interpreter.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
STABLE_FROM = "3.12"


def run(*command: object, **options: object) -> str:
    """Run a command; return its output, or exit."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **options
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def find_interpreters() -> dict[str, Path]:
    """Find the Pythons on the PATH and of pyenv, by version."""
    found = {}
    for version in VERSIONS:
        folders = [*sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin"))[::-1], None]
        for folder in folders:
            path = shutil.which(f"python{version}", path=folder and str(folder))
            if path and not _fails(path):
                found.setdefault(version, Path(path))
    return found


def _fails(python: str) -> bool:
    """Return whether it cannot create environments: a stub of pyenv, or Debian without venv."""
    return subprocess.run([python, "-c", "import ensurepip"], capture_output=True).returncode != 0


class Tools:
    """An environment with build, auditwheel and abi3audit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = new_environment(Path(sys.executable), folder / "tools")
        run(self.python, "-m", "pip", "install", "-q", *required_tools())
        run(self.python, "-m", "build", "--sdist", "--outdir", DIST, ROOT)
        (self.archive,) = DIST.glob("*.tar.gz")

    def build(self, python: Path, name: str, environment: Mapping[str, str]) -> Path:
        """Build a wheel from the archive with another interpreter."""
        builder = new_environment(python, self.folder / f"{name}-builder")
        target = self.folder / name
        run(
            *(builder, "-m", "pip", "wheel", "-q", "--no-deps", "--no-cache-dir"),
            *("--wheel-dir", target, self.archive),
            env=dict(environment),
        )
        (wheel,) = target.glob("*.whl")
        return wheel

    def repair(self, wheel: Path) -> Path:
        """Repair the wheel into dist/; check a stable-ABI one with abi3audit."""
        target = wheel.parent / "repaired"
        with_tools = {**os.environ, "PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}"}
        run(
            *(self.python, "-m", "auditwheel", "repair", "--wheel-dir", target, wheel),
            env=with_tools,
        )
        (repaired,) = target.glob("*.whl")
        if "abi3" in repaired.name:
            print(
                "   ", run(self.python, "-m", "abi3audit", "--strict", repaired).strip() or "abi3"
            )
        return Path(shutil.copy(repaired, DIST))


def required_tools() -> list[str]:
    """Return the packages of the extra 'wheels' in pyproject.toml."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return project["optional-dependencies"]["wheels"]


def new_environment(python: Path, folder: Path) -> Path:
    """Create a virtual environment; return its Python."""
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


def without_compiler(folder: Path) -> dict[str, str]:
    """Return an environment whose PATH is one folder without a compiler."""
    needed = ("HOME", "PIP_", "SSL_", "HTTP", "http")  # required to install packages
    kept = {name: value for name, value in os.environ.items() if name.startswith(needed)}
    return {**kept, "PATH": str(folder), "CC": "none", "CXX": "none"}


class Users:
    """Clean environments, one per interpreter, with all dependencies and no compiler."""

    def __init__(self, folder: Path, pythons: Mapping[str, Path], uv: Path) -> None:
        self.folder, self.pythons, self.uv = folder, pythons, uv
        self.known: dict[str, Path] = {}

    def try_out(self, wheel: Path, version: str, kernels: str) -> None:
        """Install this wheel and run README."""
        python = self.known.get(version)
        what = ["--reinstall", "--no-deps", wheel]
        if python is None:
            python = new_environment(self.pythons[version], self.folder / f"user-{version}")
            self.known[version] = python
            what = ["--only-binary", ":all:", f"evencover[all] @ {wheel.as_uri()}"]
        bare = without_compiler(python.parent)
        run(self.uv, "pip", "install", "-q", "--python", python, *what, env=bare)
        script = [ROOT / "scripts" / "try_wheel.py", "--readme", ROOT / "README.md"]
        output = run(python, "-I", *script, "--kernels", kernels, env=bare, cwd=self.folder)
        print("   ", output.splitlines()[0])


def report(what: str, wheel: Path) -> None:
    """Print name and size."""
    print(f"{what}: {wheel.name}, {wheel.stat().st_size / 1e6:.2f} MB")


def main() -> None:
    """Build and test everything; stop at the first failure."""
    shutil.rmtree(DIST, ignore_errors=True)
    pythons = find_interpreters()
    print("interpreters:", ", ".join(pythons))
    must = {**os.environ, "EVENCOVER_REQUIRE_KERNELS": "1"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools = Tools(folder)
        report("source archive", tools.archive)
        users = Users(folder, pythons, tools.python.parent / "uv")
        later = [version for version in pythons if version not in ("3.11", STABLE_FROM)]
        for version, tried_with in {"3.11": ["3.11"], STABLE_FROM: [STABLE_FROM, *later]}.items():
            if version not in pythons:
                print(f"no Python {version} here: its wheel is not built")
                continue
            wheel = tools.repair(tools.build(pythons[version], f"gcc-{version}", must))
            report(f"wheel of Python {version}", wheel)
            for user in tried_with:
                users.try_out(wheel, user, "native")
        first = next(iter(pythons))
        if shutil.which("clang++"):
            clang = {**must, "CC": "clang", "CXX": "clang++"}
            wheel = tools.build(pythons[first], "clang", clang)
            report("by clang", wheel)
            users.try_out(wheel, first, "native")
        else:
            print("no clang++ here: not tried")
        bare = without_compiler(folder)
        wheel = tools.build(pythons[first], "no-compiler", bare)
        if not re.search(r"-py3-none-any\.whl$", wheel.name):
            sys.exit(f"a wheel without compiler must be for all machines, not {wheel.name}")
        report("without compiler", wheel)
        users.try_out(wheel, first, "numpy")
    print("in dist/:", ", ".join(sorted(path.name for path in DIST.iterdir())))


if __name__ == "__main__":
    main()
