// Start-up self-test of the floating-point environment: the bits of every result rest on it.
#pragma once

namespace reference {

// Throws CheckError, with what is wrong, unless this thread rounds to nearest and keeps subnormals, and unless the compiler left
// products unfused and sums in their written order. Every program that computes reference values calls it first.
void check_float_environment();

}  // namespace reference
