// CHECK for programmer errors, InputError for what a user handed in. Libraries throw these; mains catch and print one line.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace model {

// A broken promise inside the program (wrong shape between two ops, impossible argument).
struct CheckError : std::logic_error {
  using std::logic_error::logic_error;
};

// Something the user gave is wrong: a file, a flag, a size. The message is one line that names what, where and what was
// expected; tools print it and exit with 2.
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One line that fits a terminal, whatever names out of a file are in it: control characters become '?', a long tail is cut.
inline std::string one_line(std::string message) {
  constexpr size_t kMaxLen = 1500;
  if (message.size() > kMaxLen) {
    message.resize(kMaxLen);
    message += "...";
  }
  for (char& symbol : message) {
    const bool is_control = static_cast<unsigned char>(symbol) < 0x20 || symbol == 0x7F;
    symbol = is_control ? '?' : symbol;
  }
  return message;
}

template <typename... Args>
[[noreturn]] void throw_input_error(fmt::format_string<Args...> format, Args&&... args) {
  throw InputError(one_line(fmt::format(format, std::forward<Args>(args)...)));
}

[[noreturn]] inline void throw_check_error(const char* file, int line, const std::string& what) {
  throw CheckError(fmt::format("{}:{}: check failed: {}", file, line, what));
}

}  // namespace model

#define CHECK(condition)                                          \
  do {                                                            \
    if (!(condition)) {                                           \
      ::model::throw_check_error(__FILE__, __LINE__, #condition); \
    }                                                             \
  } while (false)

#define CHECK_EQ(left, right)                                                                              \
  do {                                                                                                     \
    const auto& check_left = (left);                                                                       \
    const auto& check_right = (right);                                                                     \
    if (!(check_left == check_right)) {                                                                    \
      ::model::throw_check_error(                                                                          \
          __FILE__, __LINE__, fmt::format("{} == {} ({} vs {})", #left, #right, check_left, check_right)); \
    }                                                                                                      \
  } while (false)
