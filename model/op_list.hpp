// The model as a list: every op of a forward pass in order, with its wiring, shapes and costs, and no arithmetic.
// It is the only place where the order and the wiring of the model are written. Reading append_layer() in op_list.cpp from top
// to bottom is reading the model. Names follow docs/contracts.md (op table).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.hpp"
#include "model/dtype.hpp"
#include "model/tensor_view.hpp"

namespace model {

enum class OpKind {
  kEmbed,             // tokens -> rows of a table
  kRmsNorm,           // x (and, after attention, the summands of x) -> normed
  kLinear,            // x W^T, FP8 or BF16 weights
  kRotateQuery,       // q -> rotated rope part of every head
  kRotateKey,         // kv_a -> rotated shared rope key
  kCacheLatent,       // normed c, rotated key, earlier rows -> all rows
  kQueryLatent,       // absorbed: q_nope W_UK
  kAttentionProbs,    // softmax(scores)
  kAttentionLse,      // log of the softmax denominator (natural log, scale included)
  kOutputLatent,      // absorbed: probs c
  kAttentionContext,  // probs V, or o_latent W_UV
  kResidualAdd,       // attention output + layer input
  kRouterLogits,
  kRouterScores,
  kRouterGroups,   // ids of the kept groups, ascending biased group score is last
  kRouterExperts,  // ids of the chosen experts, descending biased score
  kRouterWeights,
  kSwiglu,       // silu(gate) * up
  kCombine,      // routed experts' outputs, weighted and summed
  kMoeOutput,    // routed + shared
  kLayerOutput,  // residual + FFN output
  kMtpConcat,    // [enorm; hnorm] W_eh: a linear of two inputs
  kHead,         // logits
};

std::string_view op_kind_name(OpKind kind);

// How attention reads the cache: keys and values expanded by kv_b, or the latent itself with kv_b absorbed into q and o.
enum class AttentionForm { kExpanded, kAbsorbed };

// One sequence of a step: `num_cached` positions are in the cache, `num_new` tokens are fed.
struct SequenceStep {
  int64_t num_cached = 0;
  int64_t num_new = 0;
};

// One step of the model. Tokens of all sequences are flattened in order, without padding.
struct Workload {
  std::vector<SequenceStep> sequences;
  AttentionForm attention_form = AttentionForm::kExpanded;
  int64_t num_mtp_layers = 0;  // how many of the config's MTP layers run after the main model
  // This MTP layer alone, without the main model and the layers before it: a draft. The normed state that it reads, final_norm or
  // mtp.k.norm of the layer before, is then an input like the tokens. num_mtp_layers is ignored.
  std::optional<int64_t> only_mtp_layer = {};

  [[nodiscard]] int64_t num_tokens() const;
  [[nodiscard]] int64_t num_keys() const;           // sum over sequences of cached + new
  [[nodiscard]] int64_t max_keys() const;           // longest sequence after the step
  [[nodiscard]] int64_t num_visible_pairs() const;  // sum over new tokens of the keys each one sees (causal)
};

struct Op {
  std::string id = {};  // "layer.3.attn.q_a"
  OpKind kind = OpKind::kEmbed;
  int64_t layer = -1;  // -1 outside the layers; MTP layer k is num_hidden_layers + k
  std::vector<std::string> inputs =
      {};  // ids of other ops, "tokens", or the op's own id: its value before this step (cache)
  std::vector<std::string> weights = {};  // catalogue names; a scale companion follows from the catalogue
  Shape shape = {};                       // output; -1 where the first extent depends on the routing (grouped ops)
  DType dtype = DType::kBF16;             // output as the published recipe (profile v32) stores it
  int64_t num_parts = 1;  // > 1: a grouped op, one part for each routed expert; '*' in names is its number
  int64_t expert = -1;    // in a part: the expert whose tokens it works on
  bool optional = false;  // nobody downstream reads it; run only if somebody asks for it

  // Costs of the whole op. flops counts multiply and add of every dot product (2 each); elementwise work is not counted.
  int64_t flops = 0;
  int64_t weight_bytes = 0;      // all parts, each weight once, scales included
  int64_t activation_bytes = 0;  // inputs read once, output written once; the cache is not in it
  int64_t kv_bytes = 0;          // latent cache read and written
};

// The whole list for one step. Throws CheckError when the workload is empty or asks for MTP layers the config lacks.
std::vector<Op> op_list(const ModelConfig& config, const Workload& workload);

// The op whose value MTP layer k reads as the incoming state: "final_norm", "mtp.0.norm", ...
std::string mtp_state_id(int64_t k);
// The op that gives the logits of the main model (no k) or of MTP layer k: "logits", "mtp.0.logits", ...
std::string logits_id(std::optional<int64_t> k);

// The part of a grouped op that belongs to one expert: "layer.3.moe.expert.*.gate" -> "layer.3.moe.expert.7.gate", with the
// expert's own inputs and weights. gate and up gather the rows of the tokens that chose the expert, in ascending order, through
// topk_ids, their second input; act and the down projection already work on gathered rows.
Op expert_part(const Op& grouped, int64_t expert);

}  // namespace model
