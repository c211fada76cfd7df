#include "tools/bench/bench_step.hpp"

#include <algorithm>

#include "model/check.hpp"
#include "model/dtype.hpp"

namespace tools {

BenchStep::BenchStep(const KernelBenchFlags& flags, int64_t vocab_size)
    : config(model::built_in_config("deepseek-v3")),
      preset(flags.preset),
      num_tokens(flags.num_tokens),
      context_len(is_prefill() ? num_tokens : flags.context_len),
      num_head_rows(is_prefill() ? 1 : num_tokens) {
  config.vocab_size = vocab_size;
  config.num_nextn_predict_layers = 0;
  const model::SequenceStep decoding{context_len - 1, 1};
  const model::SequenceStep prefilling{0, num_tokens};
  ops = model::op_list(
      config,
      {.sequences = is_prefill() ? std::vector{prefilling} : std::vector(static_cast<size_t>(num_tokens), decoding),
       .attention_form = is_prefill() ? model::AttentionForm::kExpanded : model::AttentionForm::kAbsorbed});
  for (int64_t slot = 0; slot < num_tokens * config.num_experts_per_tok; ++slot) {
    // 37 and 256 have no common factor: the first 256 slots are all different.
    expert_ids.push_back(static_cast<int32_t>(slot * 37 % config.n_routed_experts));
  }
  num_chosen = std::min<int64_t>(static_cast<int64_t>(expert_ids.size()), config.n_routed_experts);
}

KernelRow BenchStep::row(const std::string& op, const std::string& shape, const std::vector<std::string>& ids) const {
  KernelRow row{.op = op,
                .kind = "kernel",
                .shape = shape,
                .dtype = std::string(model::dtype_name(model::DType::kBF16)),
                .preset = preset,
                .num_tokens = num_tokens,
                .context_len = context_len,
                .bar = other_bar()};
  for (const auto& id : ids) {
    const auto found = std::ranges::find(ops, id, &model::Op::id);
    CHECK(found != ops.end());
    row.kind = model::op_kind_name(found->kind);
    row.flops += found->flops;
    row.weight_bytes +=
        found->num_parts > 1 ? found->weight_bytes / found->num_parts * num_chosen : found->weight_bytes;
    row.kv_bytes += found->kv_bytes;
  }
  return row;
}

}  // namespace tools
