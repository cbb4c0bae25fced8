"""What stands in for AVX-512."""

from pathlib import Path

COMPILER = Path(__file__).with_name("compiler.py")
