#include "simulator/op_fit.hpp"

#include <algorithm>
#include <cmath>

#include "model/check.hpp"

namespace simulator {
namespace {

constexpr double kBytesPerUs = 1e3;  // of a GB/s
constexpr double kFlopsPerUs = 1e6;  // of a TFLOPS

// Two resources used at the same time: the 3-norm lies between the maximum (they overlap wholly) and the sum (not at all).
double overlapped(double left, double right) {
  if (left <= 0 || right <= 0) {
    return std::max(left, right);
  }
  const double larger = std::max(left, right);
  const double ratio = std::min(left, right) / larger;
  return larger * std::cbrt(1 + ratio * ratio * ratio);
}

const std::vector<OpFamilyInfo>& infos() {
  static const std::vector<OpFamilyInfo> kInfos{
      {OpFamily::kGemmFp8, "gemm_fp8", "fixed + |bytes / memory, FLOPs / FP8 peak|_3", {"fixed_us", "memory", "math"}},
      {OpFamily::kGemmBf16,
       "gemm_bf16",
       "fixed + |bytes / memory, FLOPs / BF16 peak|_3",
       {"fixed_us", "memory", "math"}},
      {OpFamily::kExperts,
       "experts",
       "fixed + |bytes of chosen experts / memory, FLOPs / FP8 peak|_3",
       {"fixed_us", "memory", "math"}},
      {OpFamily::kAttentionBf16,
       "attention_bf16_cache",
       "fixed + |weights / memory, FLOPs / FP8 peak|_3 + |cache / memory, FLOPs / BF16 peak|_3",
       {"fixed_us", "weights_memory", "cache_memory", "score_math", "weight_math"}},
      {OpFamily::kAttentionFp8,
       "attention_fp8_cache",
       "fixed + |weights / memory, FLOPs / FP8 peak|_3 + |cache / memory, FLOPs / FP8 peak|_3",
       {"fixed_us", "weights_memory", "cache_memory", "score_math", "weight_math"}},
      {OpFamily::kPrefillScores, "prefill_scores", "fixed + FLOPs / BF16 peak", {"fixed_us", "math"}},
      {OpFamily::kAllReduce,
       "all_reduce",
       "fixed + min((n - 1) bytes / NVLink, second + 2 (n - 1) / n bytes / NVLink)",
       {"fixed_us", "one_shot_nvlink", "second_shot_us", "two_shot_nvlink"}},
      {OpFamily::kDispatch,
       "dispatch",
       "fixed + per doubling of domains + max(NVLink bytes / NVLink, other bytes / NIC)",
       {"fixed_us", "doubling_us", "nvlink", "network"}},
      {OpFamily::kCombine,
       "combine",
       "fixed + per doubling of domains + max(NVLink bytes / NVLink, other bytes / NIC)",
       {"fixed_us", "doubling_us", "nvlink", "network"}},
  };
  return kInfos;
}

}  // namespace

const OpFamilyInfo& op_family_info(OpFamily family) {
  const auto& all = infos();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const OpFamilyInfo& info) { return info.family == family; });
  CHECK(found != all.end());
  return *found;
}

Peaks peaks(const Hardware& hardware) {
  const double bf16 = hardware.bf16_dense_tflops.value * kFlopsPerUs;
  return {.memory = hardware.memory_gb_per_s.value * kBytesPerUs,
          .fp8_math = hardware.fp8_dense_tflops ? hardware.fp8_dense_tflops->value * kFlopsPerUs : bf16,
          .bf16_math = bf16,
          .nvlink = hardware.nvlink_gb_per_s.value * kBytesPerUs,
          .network = hardware.nic_gb_per_s.value * kBytesPerUs};
}

std::array<double, 3> attention_terms_us(OpFamily family,
                                         std::span<const double> constants,
                                         const OpWork& work,
                                         const Peaks& peaks) {
  const auto c = constants;
  const double math = family == OpFamily::kAttentionBf16 ? peaks.bf16_math : peaks.fp8_math;
  return {c[0],
          overlapped(work.weight_bytes / (peaks.memory * c[1]), work.weight_flops / (peaks.fp8_math * c[4])),
          overlapped(work.other_bytes / (peaks.memory * c[2]), work.score_flops / (math * c[3]))};
}

double predict_us(OpFamily family, std::span<const double> constants, const OpWork& work, const Peaks& peaks) {
  const auto c = constants;
  switch (family) {
    case OpFamily::kGemmFp8:
    case OpFamily::kExperts:
    case OpFamily::kGemmBf16: {
      const double math = family == OpFamily::kGemmBf16 ? peaks.bf16_math : peaks.fp8_math;
      return c[0] + overlapped((work.weight_bytes + work.other_bytes) / (peaks.memory * c[1]),
                               work.weight_flops / (math * c[2]));
    }
    case OpFamily::kAttentionBf16:
    case OpFamily::kAttentionFp8: {
      const auto [fixed, projections, cache] = attention_terms_us(family, c, work, peaks);
      return fixed + projections + cache;
    }
    case OpFamily::kPrefillScores: return c[0] + work.score_flops / (peaks.bf16_math * c[1]);
    case OpFamily::kAllReduce: {
      if (work.num_ranks <= 1) {
        return 0;
      }
      const double others = static_cast<double>(work.num_ranks - 1);
      const double one_shot = others * work.message_bytes / (peaks.nvlink * c[1]);
      const double ring_bytes = 2 * others / static_cast<double>(work.num_ranks) * work.message_bytes;
      return c[0] + std::min(one_shot, c[2] + ring_bytes / (peaks.nvlink * c[3]));
    }
    case OpFamily::kDispatch:
    case OpFamily::kCombine:
      return c[0] + c[1] * std::log2(static_cast<double>(work.num_domains)) +
             std::max(work.nvlink_bytes / (peaks.nvlink * c[2]), work.network_bytes / (peaks.network * c[3]));
  }
  CHECK(false);
}

double floor_us(OpFamily family, const OpWork& work, const Peaks& peaks) {
  const double memory = (work.weight_bytes + work.other_bytes) / peaks.memory;
  switch (family) {
    case OpFamily::kGemmFp8:
    case OpFamily::kExperts: return std::max(memory, work.weight_flops / peaks.fp8_math);
    case OpFamily::kGemmBf16: return std::max(memory, work.weight_flops / peaks.bf16_math);
    case OpFamily::kAttentionBf16:
      return std::max(memory, work.weight_flops / peaks.fp8_math + work.score_flops / peaks.bf16_math);
    case OpFamily::kAttentionFp8: return std::max(memory, (work.weight_flops + work.score_flops) / peaks.fp8_math);
    case OpFamily::kPrefillScores: return work.score_flops / peaks.bf16_math;
    case OpFamily::kAllReduce: return work.num_ranks <= 1 ? 0 : work.message_bytes / peaks.nvlink;
    case OpFamily::kDispatch:
    case OpFamily::kCombine: return std::max(work.nvlink_bytes / peaks.nvlink, work.network_bytes / peaks.network);
  }
  CHECK(false);
}

}  // namespace simulator
