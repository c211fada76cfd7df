// mla_prefill and mla_decode: scores, softmax and the weighted sum, in the expanded and in the absorbed form.
#include <algorithm>
#include <numeric>

#include "reference/rope.hpp"
#include "tools/op_pack/kinds.hpp"

namespace tools::op_pack {
namespace {

using model::OpKind;

// BF16 rows made of the rows of several tensors, each [rows, ...], side by side.
model::TensorView beside(const std::vector<model::TensorView>& parts, int64_t rows) {
  int64_t row_len = 0;
  std::vector<uint16_t> codes;
  for (int64_t row = 0; row < rows; ++row) {
    row_len = 0;
    for (const auto& part : parts) {
      const int64_t len = part.size() / rows;
      const auto source = part.codes<uint16_t>().subspan(static_cast<size_t>(row * len), static_cast<size_t>(len));
      codes.insert(codes.end(), source.begin(), source.end());
      row_len += len;
    }
  }
  return model::make_tensor(model::DType::kBF16, {rows, row_len}, std::move(codes));
}

model::TensorView zeros(int64_t rows, int64_t columns) {
  return model::make_tensor(
      model::DType::kBF16, {rows, columns}, std::vector<uint16_t>(static_cast<size_t>(rows * columns)));
}

// probs and lse from the op's query, rotated query, keys; then the sum over values with the last input(s).
OpPack attend(const Bench& bench,
              const model::Workload& workload,
              const std::vector<Value>& reads,
              const model::Op& sum_op,
              const Value& summed,
              const model::Shape& shape) {
  const Value probs = bench.run({.id = "probs", .kind = OpKind::kAttentionProbs}, reads, workload);
  const Value lse = bench.run({.id = "lse", .kind = OpKind::kAttentionLse}, reads, workload);
  const Value y = reshaped(bench.run(sum_op, {probs, summed}, workload), shape);
  OpPack pack{{}, {}, {{"", y.stored, y.estimate}, {"lse", lse.stored, lse.estimate}}};
  pack.facts["softmax_scale"] = reference::softmax_scale(bench.config());
  return pack;
}

}  // namespace

OpPack make_mla_prefill(Bench& bench) {
  const auto& c = bench.config();
  const int64_t tokens = bench.shape["tokens"];
  const int64_t keys = tokens + bench.shape["cached"];
  const int64_t heads = c.num_attention_heads;
  const model::Workload workload{.sequences = {{bench.shape["cached"], tokens}}};
  const auto q_nope = bench.samples.activations("q_nope", {tokens, heads, c.qk_nope_head_dim}, 0.5);
  const auto q_rope = bench.samples.activations("q_rope", {tokens, heads, c.qk_rope_head_dim}, 0.5);
  const auto k_nope = bench.samples.bf16_weight("k_nope", {keys, heads, c.qk_nope_head_dim}, 0, 1);
  const auto k_rope = bench.samples.bf16_weight("k_rope", {keys, c.qk_rope_head_dim}, 0, 1);
  const auto v = bench.samples.activations("v", {keys, heads, c.v_head_dim});
  // The model's layouts: heads with both parts of q, keys and values together, the rotated key behind the latent.
  const auto q =
      model::reshape(beside({q_nope, model::reshape(q_rope, {tokens * heads, c.qk_rope_head_dim})}, tokens * heads),
                     {tokens, heads * c.qk_head_dim()});
  const auto kv =
      model::reshape(beside({k_nope, v}, keys * heads), {keys, heads * (c.qk_nope_head_dim + c.v_head_dim)});
  const auto cache = beside({zeros(keys, c.kv_lora_rank), k_rope}, keys);
  auto pack = attend(bench,
                     workload,
                     {given_value(q), given_value(q_rope), given_value(kv), given_value(cache)},
                     {.id = "context", .kind = OpKind::kAttentionContext},
                     given_value(kv),
                     {tokens, heads, c.v_head_dim});
  pack.inputs = {{"q_nope", q_nope}, {"q_rope", q_rope}, {"k_nope", k_nope}, {"k_rope", k_rope}, {"v", v}};
  return pack;
}

OpPack make_mla_decode(Bench& bench) {
  const auto& c = bench.config();
  const auto keys = bench.shape.list("keys");
  const auto batch = static_cast<int64_t>(keys.size());
  model::Workload workload{.sequences = {}, .attention_form = model::AttentionForm::kAbsorbed};
  for (const int64_t count : keys) {
    if (count < 1) {
      model::throw_input_error("--shape keys: {} keys, expected at least the new token's", count);
    }
    workload.sequences.push_back({count - 1, 1});
  }
  const auto q_latent = bench.samples.bf16_weight("q_latent", {batch, c.num_attention_heads, c.kv_lora_rank}, 0, 0.5);
  const auto q_rope = bench.samples.bf16_weight("q_rope", {batch, c.num_attention_heads, c.qk_rope_head_dim}, 0, 0.5);
  const auto cache = bench.samples.activations("cache", {workload.num_keys(), c.latent_dim()});
  auto pack = attend(bench,
                     workload,
                     {given_value(q_latent), given_value(q_rope), given_value(cache)},
                     {.id = "o_latent", .kind = OpKind::kOutputLatent},
                     given_value(cache),
                     {batch, c.num_attention_heads, c.kv_lora_rank});
  pack.inputs = {
      {"q_latent", q_latent},
      {"q_rope", q_rope},
      {"cache", cache},
      {"keys", model::make_tensor(model::DType::kI32, {batch}, std::vector<int32_t>(keys.begin(), keys.end()))}};
  return pack;
}

}  // namespace tools::op_pack
