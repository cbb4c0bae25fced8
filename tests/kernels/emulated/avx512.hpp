// AVX-512 for machines that lack it: the _mm512_ calls of the kernels become portable code of SIMDe
// (Debian: libsimde-dev). It comes before everything else; what follows believes that the machine has
// AVX-512, and the compiler does not.
#pragma once
#include <immintrin.h>  // the compiler's own calls, before their names mean others

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

// What SIMDe 0.7.4 lacks.
inline simde__m512 emulated_maskz_loadu_ps(simde__mmask16 kept, const float* at) {
    float lanes[16] = {};
    for (int lane = 0; lane < 16; ++lane) {
        if (kept >> lane & 1) lanes[lane] = at[lane];
    }
    return simde_mm512_loadu_ps(lanes);
}
#define _mm512_maskz_loadu_ps emulated_maskz_loadu_ps

inline simde__m512i emulated_mask_loadu_epi32(simde__m512i others, simde__mmask16 kept, const void* at) {
    int32_t lanes[16];
    simde_mm512_storeu_si512(lanes, others);
    for (int lane = 0; lane < 16; ++lane) {
        if (kept >> lane & 1) lanes[lane] = static_cast<const int32_t*>(at)[lane];
    }
    return simde_mm512_loadu_si512(lanes);
}
#define _mm512_mask_loadu_epi32 emulated_mask_loadu_epi32

inline float emulated_reduce_add_ps(simde__m512 values) {
    float lanes[16], sum = 0;
    simde_mm512_storeu_ps(lanes, values);
    for (float lane : lanes) sum += lane;
    return sum;
}
#define _mm512_reduce_add_ps emulated_reduce_add_ps

#define __AVX512F__ 1
