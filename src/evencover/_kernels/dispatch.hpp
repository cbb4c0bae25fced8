// Which instruction sets this machine can run, and the kernels of each.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "kernels.hpp"

namespace evencover {

#ifdef EVENCOVER_X86_DISPATCH
inline bool runs_avx2() {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2");  // such processors have F16C, too
}

inline bool runs_avx512() {
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
#endif

// Best first.
inline std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
#ifdef EVENCOVER_X86_DISPATCH
    if (runs_avx512()) names.push_back("avx512");
    if (runs_avx2()) names.push_back("avx2");
#endif
    names.push_back("baseline");
    return names;
}

inline const Kernels& kernels_for(const std::string& instruction_set) {
#ifdef EVENCOVER_X86_DISPATCH
    if (instruction_set == "avx512" && runs_avx512()) return avx512::kernels;
    if (instruction_set == "avx2" && runs_avx2()) return avx2::kernels;
#endif
    if (instruction_set != "baseline") throw std::invalid_argument("unknown instruction set");
    return baseline::kernels;
}

}  // namespace evencover
