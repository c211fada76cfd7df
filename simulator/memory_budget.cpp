#include "simulator/memory_budget.hpp"

#include <algorithm>
#include <cmath>

#include "simulator/op_work.hpp"
#include "simulator/traffic.hpp"

namespace simulator {
namespace {

constexpr double kMiB = 1 << 20;
// A card sold as 80 GB reports 84.94e9 bytes (deviceProperties in DeepSeek's published traces): 79.1 of 2^30.
constexpr double kCardGb = 0.989 * (1 << 30);

double real(int64_t value) {
  return static_cast<double>(value);
}

}  // namespace

MemoryBudget memory_budget(const model::ModelConfig& config,
                           const Hardware& hardware,
                           const RankLayout& rank,
                           const MemoryRequest& request) {
  const auto& layout = rank.layout;
  const double tp = real(layout.tp);
  const double stages = real(layout.pp);
  const double hidden = real(config.hidden_size);
  // The fullest stage; MTP layers stand on the last one.
  const double layers = std::ceil(real(config.num_hidden_layers) / stages) + (rank.mtp_depth > 0 ? 1 : 0);
  double moe_layers = rank.mtp_depth > 0 ? 1 : 0;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    moe_layers += config.is_moe_layer(layer) ? 1 / stages : 0;
  }
  moe_layers = std::min(std::ceil(moe_layers), layers);
  const double dense_layers = layers - moe_layers;
  const int64_t placed = rank.num_placed_experts(config) + rank.redundant_experts;
  const double slots = std::ceil(real(placed) / real(layout.ep));
  const double cache_bytes_each = rank.kv_dtype == KvDtype::kFp8 ? 1 : 2;

  MemoryBudget budget;
  const auto add = [&](const char* name, double bytes, const char* formula) {
    budget.items.push_back({name, bytes, formula});
  };
  add("attention weights",
      layers * attention_weights(config, real(config.num_attention_heads) / tp),
      "layers x (latent projections whole, heads / tp), FP8");
  add("routed experts",
      moe_layers * slots * expert_weights(config) / real(layout.expert_tp()),
      "MoE layers x ceil((experts + redundant) / ep), FP8; with a routed shared expert that too");
  if (rank.shared_place() != SharedExpertPlace::kRouted) {
    add("shared expert",
        moe_layers * real(config.n_shared_experts) * expert_weights(config) /
            (rank.shared_place() == SharedExpertPlace::kReplicated ? 1 : tp),
        "MoE layers, over tp, or whole where replicated, FP8");
  }
  add("dense layers",
      dense_layers * 3 * hidden * real(config.intermediate_size) / real(rank.dense_ranks()),
      "over dense tp, FP8");
  add("router", moe_layers * 2 * hidden * real(config.n_routed_experts), "BF16");
  add("embedding and head", (stages > 1 ? 1 : 2) * 2 * hidden * real(config.vocab_size) / tp, "BF16, over tp");
  if (rank.is_spread()) {
    // DeepEP's low-latency buffers: two, each with room for every expert's tokens from every rank, as BF16.
    constexpr double kTokensPerRank = 128;
    const double copies = real(placed) * kTokensPerRank;
    add("all-to-all buffers",
        2 * copies * real(copy_bytes(config.hidden_size).combine),
        "2 x experts x 128 tokens x BF16 hidden");
  }
  // SGLang reserves 512 MB, tp pp / 8 GiB for communicators and 2 MB a sequence for graphs; eight tensors of a chunk are alive at
  // once in a layer (residual, normed, quantised, projections, scores, expert inputs and outputs, sum).
  constexpr double kLongestChunk = 8192;
  constexpr double kLiveTensors = 8;
  add("activations",
      512 * kMiB + kLiveTensors * 2 * hidden * std::min(request.prefill_chunk, kLongestChunk),
      "512 MiB + 8 BF16 tensors of a prefill chunk");
  add("graphs and communicators",
      2 * kMiB * std::min(request.sequences, 512.0) + 1024 * kMiB * std::min(1.0, tp * stages / 8),
      "2 MiB a sequence up to 512, tp pp / 8 GiB up to 1");
  for (const MemoryItem& item : budget.items) {
    budget.fixed_bytes += item.bytes;
  }
  budget.cache_bytes_per_sequence = request.tokens_per_sequence * layers * real(config.latent_dim()) * cache_bytes_each;
  budget.usable_bytes = hardware.memory_gb.value * kCardGb * request.memory_frac;
  budget.max_sequences = (budget.usable_bytes - budget.fixed_bytes) / budget.cache_bytes_per_sequence;
  add("KV cache",
      request.sequences * budget.cache_bytes_per_sequence,
      "sequences x tokens x layers x (kv_lora + rope); whole on every tp rank");
  budget.total_bytes = budget.fixed_bytes + budget.items.back().bytes;
  return budget;
}

}  // namespace simulator
