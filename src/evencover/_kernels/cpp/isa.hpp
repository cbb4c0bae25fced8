// The namespace of the instruction set that this translation unit is compiled for.
//
// Everything that kernels.cpp includes lives in it, and uses the standard library only where it is
// inlined or instantiated with types of this namespace: otherwise the linker could keep the AVX-512
// copy of a shared function for machines that lack it.
#pragma once

#ifndef EVENCOVER_ISA
#define EVENCOVER_ISA baseline
#endif

#define EVENCOVER_BEGIN   \
    namespace evencover { \
    namespace EVENCOVER_ISA {
#define EVENCOVER_END \
    }                 \
    }
