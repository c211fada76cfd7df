// Plain figures about how far two tensors are apart. They accompany a verdict and never decide it.
#pragma once

#include <cstdint>
#include <span>

#include "model/dtype.hpp"

namespace golden {

// Positions where NaN or infinity stands on one side only, or infinities differ in sign, are counted as mismatches and left out
// of every other figure but equal_frac and worst_index. Equal infinities and two NaN count as equal and are left out too.
// x is the expected tensor, y the other; sums run in index order in double.
struct Metrics {
  int64_t num_elements = 0;
  int64_t nan_mismatches = 0;  // NaN on one side only
  int64_t inf_mismatches = 0;  // infinity on one side only (the other a number), or of different sign
  double max_ulp = 0;          // steps of the storage dtype between x and y; whole when both can be stored in it
  double max_abs = 0;          // max |x - y|
  double cosine = 1;           // <x,y> / (|x| |y|); 1 for two zero vectors, 0 if one is zero
  double calc_diff = 0;        // 1 - 2 <x,y> / (|x|^2 + |y|^2) = |x - y|^2 / (|x|^2 + |y|^2); 0 for two zero vectors
  double relative_l2 = 0;      // |x - y| / |x|; 0 for two zero vectors, infinity if only x is zero
  double equal_frac = 1;  // share of elements with equal bits (zeros of different sign differ); 1 when there are none
  int64_t worst_index = -1;  // first NaN or infinity mismatch, else first place of max_abs; -1: no difference in value
};

// `storage` is the dtype whose steps max_ulp counts. Both spans have the same length.
Metrics compare_values(std::span<const double> expected, std::span<const double> got, model::DType storage);

// Number of steps of a dtype from a to b, both finite. Between two neighbours of the dtype the count grows linearly, so values
// that the dtype cannot hold give fractions; +0 and -0 are zero steps apart. For integers: |a - b|.
double ulp_distance(double a, double b, model::DType dtype);

}  // namespace golden
