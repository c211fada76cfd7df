// The options that cut a model over ranks, and the ranks themselves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/parallel_plan.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace tools {

struct LayoutFlags {
  int64_t tp = 1;
  int64_t pp = 1;
  std::optional<int64_t> dp = {};     // default: what the ranks leave, or as many as ep asks for
  std::optional<int64_t> ep = {};     // default: every rank of a stage
  std::optional<int64_t> ranks = {};  // default: tp * dp * pp
  bool sequence_parallel = false;
  std::string placement;      // file: where the experts and their copies lie; empty: in order
  int64_t num_redundant = 0;  // slots beyond the experts, for experts 0, 1, ... again
};

void add_layout_options(CLI::App& app, LayoutFlags& flags);

// num_ranks: of a world that is there already (mpirun). Throws InputError, naming the numbers, when they do not fit together or the model
// cannot be cut, or the engine cannot run it, like that.
model::ParallelLayout layout_of(const LayoutFlags& flags,
                                const model::ModelConfig& config,
                                std::optional<int64_t> num_ranks = {});

// The placement that the flags ask for, of every layer; empty without one. Layers that a file does not have (MTP) have as many slots, in
// order. Throws InputError.
model::ExpertSlots expert_slots_of(const LayoutFlags& flags,
                                   const model::ModelConfig& config,
                                   const model::ParallelLayout& layout);

// The place of a rank in words: "rank 5 (dp 1, tp 1)".
std::string rank_text(const model::ParallelPlan& plan, int64_t rank);

}  // namespace tools
