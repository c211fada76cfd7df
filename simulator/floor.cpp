#include "simulator/floor.hpp"

#include <algorithm>

#include "model/check.hpp"
#include "simulator/traffic.hpp"

namespace simulator {
namespace {

// GB/s is 1e3 bytes a microsecond.
double transfer_us(double bytes, const Figure& gb_per_s) {
  return bytes / (gb_per_s.value * 1e3);
}

Floor larger(Floor left, Floor right) {
  return right.time_us > left.time_us ? right : left;
}

// What one kernel needs at least; several ops of the list may be one kernel.
struct KernelNeeds {
  double memory_us = 0;
  double compute_us = 0;

  [[nodiscard]] Floor floor() const {
    return larger({memory_us, memory_us > 0 ? Bound::kMemory : Bound::kNone}, {compute_us, Bound::kCompute});
  }
};

KernelNeeds op_needs(const WalkStep& step, const Hardware& hardware) {
  const bool is_fp8 = step.math_dtype == model::DType::kF8E4M3 && hardware.fp8_dense_tflops.has_value();
  const double tflops = is_fp8 ? hardware.fp8_dense_tflops->value : hardware.bf16_dense_tflops.value;
  const double bytes = step.rank_read_bytes + static_cast<double>(step.rank_kv_bytes);
  return {.memory_us = transfer_us(bytes, hardware.memory_gb_per_s), .compute_us = step.rank_flops / (tflops * 1e6)};
}

// `scores` are the needs of the layer's probs.
Floor values_floor(const KernelNeeds& scores, const KernelNeeds& values) {
  const KernelNeeds both{.memory_us = scores.memory_us, .compute_us = scores.compute_us + values.compute_us};
  const double added_us = both.floor().time_us - scores.floor().time_us;
  return {added_us, added_us > 0 ? Bound::kCompute : Bound::kNone};
}

// The part inside a domain on NVLink, 1 / domain of the payload between domains on each GPU's own NIC.
Floor ring_floor(const WalkStep& step, const Hardware& hardware) {
  const auto ranks = static_cast<double>(step.group_len);
  const double in_domain = std::min(ranks, hardware.nvlink_domain_gpus.value);
  const double num_domains = std::max(1.0, ranks / in_domain);
  const double rounds = step.collective == Collective::kAllReduce ? 2 : 1;
  const double payload = rounds * static_cast<double>(step.payload_bytes);
  const double nvlink_bytes = payload * (in_domain - 1) / in_domain;
  const double nic_bytes = payload / in_domain * (num_domains - 1) / num_domains;
  return larger({transfer_us(nvlink_bytes, hardware.nvlink_gb_per_s), Bound::kNvlink},
                {transfer_us(nic_bytes, hardware.nic_gb_per_s), Bound::kNetwork});
}

Floor alltoall_floor(const WalkStep& step,
                     const CopySpread& spread,
                     int64_t copies_per_token,
                     const Hardware& hardware) {
  const double copy_bytes = static_cast<double>(step.payload_bytes) / static_cast<double>(copies_per_token);
  return larger({transfer_us(copy_bytes * spread.per_copy_in_node, hardware.nvlink_gb_per_s), Bound::kNvlink},
                {transfer_us(copy_bytes * spread.per_node_off_node, hardware.nic_gb_per_s), Bound::kNetwork});
}

}  // namespace

std::string_view bound_name(Bound bound) {
  switch (bound) {
    case Bound::kNone: return "";
    case Bound::kMemory: return "memory";
    case Bound::kCompute: return "compute";
    case Bound::kNvlink: return "nvlink";
    case Bound::kNetwork: return "network";
  }
  model::throw_check_error(__FILE__, __LINE__, "unknown bound");
}

std::vector<Floor> walk_floors(const Walk& walk, const model::ModelConfig& config, const Hardware& hardware) {
  const auto domain = static_cast<int64_t>(hardware.nvlink_domain_gpus.value);
  CopySpread spread;
  if (config.n_routed_experts > 0) {
    spread = copy_spread({config.n_routed_experts, config.num_experts_per_tok, config.n_group, config.topk_group},
                         walk.layout.ep,
                         domain);
  }
  const auto is_kind = [](const WalkStep& step, model::OpKind kind) { return step.kind == model::op_kind_name(kind); };
  KernelNeeds scores;
  std::vector<Floor> floors;
  for (const WalkStep& step : walk.steps) {
    if (step.is_optional) {
      floors.emplace_back();
    } else if (step.collective == Collective::kNone) {
      const KernelNeeds needs = op_needs(step, hardware);
      const bool is_values = is_kind(step, model::OpKind::kOutputLatent) ||
                             (is_kind(step, model::OpKind::kAttentionContext) && step.global_weight_bytes == 0);
      if (is_kind(step, model::OpKind::kAttentionProbs)) {
        scores = needs;
      }
      floors.push_back(is_values ? values_floor(scores, needs) : needs.floor());
    } else if (step.collective == Collective::kAllToAll) {
      floors.push_back(alltoall_floor(step, spread, config.num_experts_per_tok, hardware));
    } else if (step.collective == Collective::kSend) {
      const bool in_domain = step.group_stride < domain;
      floors.push_back({transfer_us(step.rank_wire_bytes, in_domain ? hardware.nvlink_gb_per_s : hardware.nic_gb_per_s),
                        in_domain ? Bound::kNvlink : Bound::kNetwork});
    } else {
      floors.push_back(ring_floor(step, hardware));
    }
  }
  return floors;
}

}  // namespace simulator
