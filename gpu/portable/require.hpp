// What a launcher asks of its arguments, and the errors of launches. Apart from model/check.hpp because nvcc cannot compile the formatting library behind that.
#pragma once

#include <stdexcept>

namespace gpu {

// A launcher was handed arguments that its kernel does not support.
struct ArgumentError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// What a device's driver refused or found, in its words.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void require(bool holds, const char* what) {
  if (!holds) {
    throw ArgumentError(what);
  }
}

}  // namespace gpu
