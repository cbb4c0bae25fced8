// The namespace of the instruction set that this translation unit is compiled for.
//
// Everything that kernels.cpp includes is in this namespace. It uses the standard library only
// inlined or instantiated with types of this namespace. Otherwise the linker could keep the AVX-512
// copy of a shared function for machines without AVX-512.
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
