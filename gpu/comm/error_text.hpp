// What an error says, for the line that tells of a rank that failed.
#pragma once

#include <exception>
#include <string>

namespace gpu::comm {

inline std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an error without a text";
  }
}

}  // namespace gpu::comm
