#!/usr/bin/env python3
"""The C++ compiler, told to build the AVX-512 kernels for machines without AVX-512."""

import os
import sys
from pathlib import Path

given = [each for each in sys.argv[1:] if not each.startswith(("-mavx512", "-mprefer-vector"))]
given.append("-D__builtin_cpu_supports(name)=true")  # all of them can run here
if "-DEVENCOVER_ISA=avx512" in given:
    given += ["-mavx2", "-mf16c", "-include", str(Path(__file__).with_name("avx512.hpp"))]
os.execvp("g++", ["g++", *given])
