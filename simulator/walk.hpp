// One step of the model as one rank sees it: every op of model/op_list in order, whole and as the rank's share, and between them
// the collectives that the layout needs. Routing is taken as uniform. No times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/op_list.hpp"
#include "model/parallel_plan.hpp"

namespace simulator {

enum class Phase { kPrefill, kDecode };

// What every DP rank works on.
struct StepShape {
  Phase phase = Phase::kDecode;
  int64_t num_sequences = 1;
  int64_t num_cached = 0;  // positions of each sequence in the cache before the step
  int64_t num_new = 1;     // tokens of each sequence fed
  bool with_mtp = false;

  [[nodiscard]] int64_t num_tokens() const { return num_sequences * num_new; }
};

enum class Collective { kNone, kAllReduce, kAllGather, kReduceScatter, kAllToAll, kSend };

// "", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send".
std::string_view collective_name(Collective collective);

// An op, or a collective behind the op whose id starts its own.
struct WalkStep {
  std::string id;
  std::string kind;
  int64_t layer = -1;
  int64_t stage = 0;
  model::DType dtype = model::DType::kBF16;
  model::Shape global_shape = {};  // over all DP ranks; rows of a grouped op: token copies of all experts
  model::Shape rank_shape = {};    // rows of a grouped op: the rank's mean, rounded up
  int64_t global_parts = 1;        // experts of a grouped op
  int64_t rank_parts = 1;          // on the rank with most
  bool is_optional = false;        // see model::Op

  model::DType math_dtype = model::DType::kBF16;  // of the products

  int64_t global_weight_bytes = 0;  // each weight once
  int64_t rank_weight_bytes = 0;    // held
  double rank_read_bytes = 0;  // of them read: of experts those that some token chooses, of a table the looked-up rows
  int64_t rank_kv_bytes = 0;   // cache read and written
  int64_t global_flops = 0;
  double rank_flops = 0;

  Collective collective = Collective::kNone;
  int64_t group_len = 1;      // ranks that take part
  int64_t group_stride = 1;   // distance of neighbours in the group
  int64_t payload_bytes = 0;  // all-reduce, all-gather, reduce-scatter: the whole tensor; else what the rank would send
  double rank_wire_bytes = 0;  // sent by the rank to other ranks (ring algorithms)
};

struct Walk {
  model::ParallelLayout layout;
  StepShape shape;
  std::vector<WalkStep> steps;
};

// Throws InputError for a step that is empty or too long, or MTP layers that the model lacks.
Walk walk(const model::ParallelPlan& plan, const StepShape& shape);

}  // namespace simulator
