// Which rank holds which slice of which tensor, for one layout of a deployment. Data only: a weight loader reads it to load, a
// simulator reads it to count. It moves no bytes and knows no network.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/config.hpp"
#include "model/op_list.hpp"
#include "model/tensor_catalog.hpp"

namespace model {

// World = pp stages of dp replicas of tp ranks; rank = (stage * dp + dp_rank) * tp + tp_rank.
struct ParallelLayout {
  int64_t tp = 1;  // heads, dense and shared FFN, vocabulary
  int64_t ep = 1;  // routed experts; divides tp, or is a multiple of it that divides tp * dp
  int64_t pp = 1;  // contiguous ranges of layers; embedding on the first stage, final norm, head and MTP on the last
  int64_t dp = 1;  // replicas of everything but the routed experts
  bool sequence_parallel = false;  // the tokens of a MoE layer are split over tp; moves no weight

  [[nodiscard]] int64_t num_ranks() const { return tp * pp * dp; }
  [[nodiscard]] int64_t stage_len() const { return tp * dp; }
  // ep < tp: each expert is cut into tp / ep slices, as the other FFNs are into tp.
  [[nodiscard]] int64_t expert_tp() const { return ep < tp ? tp / ep : 1; }
};

struct RankPlace {
  int64_t stage = 0;
  int64_t dp_rank = 0;
  int64_t tp_rank = 0;
  int64_t ep_rank = 0;
  int64_t expert_tp_rank = 0;

  bool operator==(const RankPlace&) const = default;
};

// A half-open range of layers, experts or rows.
struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const IndexRange&) const = default;
};

// What tensor-parallel ranks share of a tensor. Weights are [out, in]: dimension 0 is the output, 1 the input.
struct TensorSplit {
  int64_t dimension = 0;
  int64_t degree = 1;  // 1: every holder has the whole tensor

  bool operator==(const TensorSplit&) const = default;
};

struct TensorSlice {
  int64_t tensor_idx = 0;  // in ParallelPlan::tensors
  int64_t dimension = 0;
  IndexRange range;  // along the dimension; the other dimension is whole

  bool operator==(const TensorSlice&) const = default;
};

// The routed experts of a stage in slots, layer by layer (MTP layers included; empty where a layer has none): as many slots on each EP
// rank, rank 0's first. An expert is in one slot or in several, which are copies of it.
using ExpertSlots = std::vector<std::vector<int64_t>>;

struct ParallelPlan {
  ModelConfig config;
  ParallelLayout layout;
  std::vector<CatalogTensor> tensors;  // the catalogue
  std::vector<TensorSplit> splits;     // of every tensor
  ExpertSlots expert_of_slot = {};     // empty: every expert once, as experts() says

  [[nodiscard]] RankPlace place(int64_t rank) const;
  // Layers of a stage, MTP layers (ids from num_hidden_layers) included.
  [[nodiscard]] IndexRange stage_layers(int64_t stage) const;
  // Without slots: expert e belongs to EP rank floor(e * ep / n_routed_experts).
  [[nodiscard]] IndexRange experts(int64_t ep_rank) const;
  // By slot, with slots or without; twice where a rank has two copies.
  [[nodiscard]] std::vector<int64_t> hosted_experts(int64_t layer, int64_t ep_rank) const;
  // Empty when the rank has no part of the tensor.
  [[nodiscard]] std::optional<TensorSlice> slice(int64_t tensor_idx, int64_t rank) const;
  [[nodiscard]] std::vector<TensorSlice> slices(int64_t rank) const;
  // All ranks that hold the same slice as this one, itself included, ascending: declared replicas. The first one is the owner.
  // Empty when the rank has no part of the tensor.
  [[nodiscard]] std::vector<int64_t> holders(int64_t tensor_idx, int64_t rank) const;
};

// True if a tensor-parallel rank computes only its part of the op's output, along the second dimension (heads, or columns), before it
// reduces anything; else all of it.
bool is_cut_over_tensor_ranks(const Op& op);
// True if a sequence-parallel rank computes only its rows of the op's output.
bool is_cut_over_rows(const Op& op);

// Throws InputError when the layout is not possible: a degree below 1, more stages than layers, more EP ranks than experts or slots, heads
// or rows that do not divide, an FP8 tensor cut inside a 128x128 block. The message names tensor, dimension, extent and degree.
// Likewise for slots that do not divide over the EP ranks, differ in number from layer to layer, or leave an expert out.
ParallelPlan parallel_plan(const ModelConfig& config, const ParallelLayout& layout, ExpertSlots expert_of_slot = {});

}  // namespace model
