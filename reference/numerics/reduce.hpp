// The written order of every sum of the reference, for float (published modes) and double (exact mode).
// A vector is cut into blocks of 128. Inside a block, lane l (k mod 16) adds its products in ascending k; lanes are joined by the
// fixed tree (i, i+8), (i, i+4), (i, i+2), (i, i+1); blocks are added in ascending order.
// Products are rounded before they are added: exact for BF16 and FP8 operands in float, so a fused form has the same bits there.
#pragma once

#include <span>

namespace reference {

inline constexpr int kBlockLen = 128;
inline constexpr int kNumLanes = 16;

// Instantiated for float and double.
template <typename T>
T sum_in_order(std::span<const T> x);
template <typename T>
T sum_of_squares_in_order(std::span<const T> x);
// a.size() == b.size(), not checked: the innermost loop of the reference.
template <typename T>
T dot_in_order(std::span<const T> a, std::span<const T> b);
// One block only (at most 128 elements): what a per-block scale multiplies.
template <typename T>
T block_dot(std::span<const T> a, std::span<const T> b);

}  // namespace reference
