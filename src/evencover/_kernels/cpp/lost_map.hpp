// Truncating a memory-mapped file ends the process by a signal (SIGBUS). The handler prints a
// message first.
#pragma once

#include <atomic>
#include <string>

#if defined(__unix__) || defined(__APPLE__)
#include <csignal>
#include <unistd.h>
#endif

namespace evencover {

#if defined(__unix__) || defined(__APPLE__)

inline std::string& last_words() {
    static std::string words;
    return words;
}

// Uses only functions that are safe in a signal handler.
inline void end_with_last_words(int) {
    static std::atomic_flag is_ending = ATOMIC_FLAG_INIT;
    while (is_ending.test_and_set()) pause();  // another thread prints them and ends the process
    const std::string& words = last_words();
    const ssize_t written = write(2, words.data(), words.size());
    _exit(written < 0 ? 1 : 2);
}

inline void say_when_a_map_is_lost(const std::string& words) {
    last_words() = words;
    struct sigaction action = {};
    action.sa_handler = end_with_last_words;
    sigaction(SIGBUS, &action, nullptr);
}

#else

inline void say_when_a_map_is_lost(const std::string&) {}

#endif

}  // namespace evencover
