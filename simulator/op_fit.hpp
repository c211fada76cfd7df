// How long an op takes, as a formula with a few constants for each op family and GPU: a fixed time plus a roofline whose bandwidth
// and peak are a fraction of the hardware's. The constants come from measurements (calibrate.hpp); the formulas live here.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/hardware.hpp"

namespace simulator {

enum class OpFamily {
  kGemmFp8,        // a linear layer, FP8 with 128x128 scales
  kGemmBf16,       // a linear layer in BF16
  kExperts,        // all experts of a rank
  kAttentionBf16,  // MLA decode module with projections, absorbed form, BF16 cache
  kAttentionFp8,   // the same, FP8 cache
  kPrefillScores,  // scores and values of a prompt, expanded form
  kAllReduce,      // inside an NVLink domain, one-shot or two-shot kernel, captured in a graph
  kDispatch,       // low-latency all-to-all, FP8 out
  kCombine,        // low-latency all-to-all, BF16 back
};

inline constexpr std::array kOpFamilies{OpFamily::kGemmFp8,
                                        OpFamily::kGemmBf16,
                                        OpFamily::kExperts,
                                        OpFamily::kAttentionBf16,
                                        OpFamily::kAttentionFp8,
                                        OpFamily::kPrefillScores,
                                        OpFamily::kAllReduce,
                                        OpFamily::kDispatch,
                                        OpFamily::kCombine};

// Names of the family and of its constants (positive numbers; those that end in _us are times, the others fractions of a peak).
struct OpFamilyInfo {
  OpFamily family;
  std::string_view name;
  std::string_view formula;
  std::vector<std::string_view> constants;
};

const OpFamilyInfo& op_family_info(OpFamily family);

// What one call does on one rank. Fields that a family does not use stay 0.
struct OpWork {
  double weight_bytes = 0;
  double other_bytes = 0;    // GEMM, experts: activations; attention: cache
  double weight_flops = 0;   // products with weights
  double score_flops = 0;    // attention: products with the cache
  double message_bytes = 0;  // all-reduce: the whole tensor
  int64_t num_ranks = 1;     // all-reduce: all in one NVLink domain
  double nvlink_bytes = 0;   // dispatch, combine: sent to ranks of the domain
  double network_bytes = 0;  // dispatch, combine: sent to other domains
  int64_t num_domains = 1;   // dispatch, combine
};

// Peaks that a family is held against, in bytes and FLOPs a microsecond.
struct Peaks {
  double memory = 0;
  double fp8_math = 0;  // BF16 where the GPU has no FP8
  double bf16_math = 0;
  double nvlink = 0;
  double network = 0;

  bool operator==(const Peaks&) const = default;
};

Peaks peaks(const Hardware& hardware);

// The constants' answer. Never below floor_us().
double predict_us(OpFamily family, std::span<const double> constants, const OpWork& work, const Peaks& peaks);
// The terms of the two attention families: fixed, projections, cache. They add up to predict_us().
std::array<double, 3> attention_terms_us(OpFamily family,
                                         std::span<const double> constants,
                                         const OpWork& work,
                                         const Peaks& peaks);
// What the hardware needs at least: all fractions 1, no fixed time, memory and math at once.
double floor_us(OpFamily family, const OpWork& work, const Peaks& peaks);

// |predicted / measured - 1| over rows that were left out of the fit.
struct Residuals {
  int64_t num_rows = 0;
  int64_t num_below_floor = 0;  // measured faster than the hardware can be: left out
  double median_frac = 0;
  double p90_frac = 0;

  bool operator==(const Residuals&) const = default;
};

struct OpFit {
  OpFamily family = OpFamily::kGemmFp8;
  std::vector<double> constants = {};
  Residuals residuals = {};
  std::string source = {};

  bool operator==(const OpFit&) const = default;
};

}  // namespace simulator
