// swiglu_quant, act_quant and combine.
#include <algorithm>
#include <cmath>

#include "reference/numerics/bf16.hpp"
#include "reference/numerics/fp8.hpp"
#include "reference/numerics/reduce.hpp"
#include "reference/quantize.hpp"
#include "reference/tokens.hpp"
#include "reference/values.hpp"
#include "tools/op_pack/kinds.hpp"

namespace tools::op_pack {
namespace {

using model::OpKind;

// Codes of one block from numbers that are known up to an error, and its scale. Both are exact arithmetic, so errors only come in
// where an input is not certain: codes are then taken at both ends and with each scale that the largest magnitude allows.
void quantize_block(const reference::QuantizeRule& rule,
                    std::span<const double> x,
                    std::span<const double> error,
                    model::Estimate& codes,
                    model::Estimate& scales) {
  double amax = 0;
  double amax_low = 0;
  double amax_high = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    amax = std::max(amax, std::abs(x[i]));
    amax_low = std::max(amax_low, std::abs(x[i]) - error[i]);
    amax_high = std::max(amax_high, std::abs(x[i]) + error[i]);
  }
  const auto block = [&](double largest) { return reference::block_scale(rule, static_cast<float>(largest)); };
  const auto found = block(amax);
  const auto low = block(amax_low);
  const auto high = block(amax_high);
  scales.value.push_back(found.scale);
  scales.error.push_back(std::max(found.scale - low.scale, high.scale - found.scale));
  for (size_t i = 0; i < x.size(); ++i) {
    const double code = reference::activation_code(rule, static_cast<float>(x[i]), found);
    double code_error = 0;
    for (const auto& scale : {low, found, high}) {
      for (const double end : {x[i] - error[i], x[i] + error[i]}) {
        code_error =
            std::max(code_error, std::abs(reference::activation_code(rule, static_cast<float>(end), scale) - code));
      }
    }
    codes.value.push_back(code);
    codes.error.push_back(code_error);
  }
}

// Outputs "" (codes) and "scales" of a [rows, columns] tensor.
std::vector<PackOutput> quantized(const reference::QuantizeRule& rule, const Value& x) {
  const int64_t rows = x.stored.num_rows();
  const auto columns = static_cast<size_t>(x.stored.row_len());
  const auto numbers = reference::load<float>(x.stored);
  const model::Estimate estimate = x.is_given ? x.estimate : reference::rounded(x.estimate);
  model::Estimate codes{x.stored.shape, {}, {}, model::DType::kF8E4M3};
  model::Estimate scales{{}, {}, {}, model::DType::kF32};
  std::vector<uint8_t> stored_codes;
  std::vector<float> stored_scales;
  for (size_t begin = 0; begin < numbers.size(); begin += columns) {
    const auto row = reference::quantize_row(rule, std::span<const float>(numbers).subspan(begin, columns));
    stored_scales.insert(stored_scales.end(), row.scales.begin(), row.scales.end());
    std::transform(row.codes.begin(), row.codes.end(), std::back_inserter(stored_codes), reference::encode_f8_e4m3);
    for (size_t col = 0; col < columns; col += reference::kBlockLen) {
      const size_t len = std::min<size_t>(reference::kBlockLen, columns - col);
      quantize_block(rule,
                     std::span<const double>(estimate.value).subspan(begin + col, len),
                     std::span<const double>(estimate.error).subspan(begin + col, len),
                     codes,
                     scales);
    }
  }
  scales.shape = {rows, static_cast<int64_t>(stored_scales.size()) / rows};
  auto code_tensor = model::make_tensor(model::DType::kF8E4M3, codes.shape, std::move(stored_codes));
  auto scale_tensor = model::make_tensor(model::DType::kF32, scales.shape, std::move(stored_scales));
  return {{"", std::move(code_tensor), std::move(codes)}, {"scales", std::move(scale_tensor), std::move(scales)}};
}

void require_quantiser(const Bench& bench) {
  if (bench.rules.exact() || bench.rules.gemm != reference::Gemm::kFp8) {
    model::throw_input_error(
        "op {}: the chosen mode quantises no activations; expected --mode published and --gemm fp8",
        bench.request.kind);
  }
}

}  // namespace

OpPack make_act_quant(Bench& bench) {
  require_quantiser(bench);
  const auto x = bench.samples.activations("x", {bench.shape["tokens"], bench.shape["dim"]});
  return {{}, {{"x", x}}, quantized(bench.rules.quantize, given_value(x))};
}

OpPack make_swiglu_quant(Bench& bench) {
  require_quantiser(bench);
  const model::Shape shape{bench.shape["tokens"], bench.shape["dim"]};
  const auto gate = bench.samples.activations("gate", shape);
  const auto up = bench.samples.activations("up", shape);
  const Value act = bench.run({.id = "act", .kind = OpKind::kSwiglu}, {given_value(gate), given_value(up)});
  return {{}, {{"gate", gate}, {"up", up}}, quantized(bench.rules.quantize, act)};
}

OpPack make_combine(Bench& bench) {
  const int64_t tokens = bench.shape["tokens"];
  const int64_t k = bench.shape["topk"];
  const auto& c = bench.config();
  const auto ids = bench.samples.distinct_ids("topk_ids", tokens, k, c.n_routed_experts);
  const auto numbers = bench.samples.uniform("topk_weights", tokens * k, 0.05, 0.6);
  const bool bf16_weights = bench.rules.router == reference::RouterRule::kBf16 && !bench.rules.exact();
  const auto weights =
      reference::store<float>({tokens, k}, numbers, bf16_weights ? model::DType::kBF16 : model::DType::kF32);
  // Row (token, slot) of the experts' outputs, and the same rows gathered by expert.
  const auto y = bench.samples.activations("expert_rows", {tokens * k, c.hidden_size});
  std::vector<std::vector<uint16_t>> gathered(static_cast<size_t>(c.n_routed_experts));
  const auto choices = reference::choices_of_tokens(ids, false);
  for (size_t t = 0; t < choices.size(); ++t) {
    for (const auto& choice : choices[t]) {
      const int64_t row = static_cast<int64_t>(t) * k + choice.slot;
      const auto codes = model::slice_rows(y, row, row + 1).codes<uint16_t>();
      auto& rows = gathered[static_cast<size_t>(choice.expert)];
      rows.insert(rows.end(), codes.begin(), codes.end());
    }
  }
  std::vector<Value> outputs;
  for (auto& codes : gathered) {
    const auto rows = static_cast<int64_t>(codes.size()) / c.hidden_size;
    outputs.push_back(
        rows == 0 ? Value{.stored = {}, .estimate = {}, .is_given = true}
                  : given_value(model::make_tensor(model::DType::kBF16, {rows, c.hidden_size}, std::move(codes))));
  }
  Value sum =
      bench.run({.id = "routed", .kind = OpKind::kCombine}, {given_value(ids), given_value(weights)}, {}, outputs);
  OpPack pack{
      {},
      {{"topk_ids", ids}, {"topk_weights", weights}, {"expert_rows", model::reshape(y, {tokens, k, c.hidden_size})}},
      {}};
  if (bench.shape["shared"] != 0) {
    const auto shared = bench.samples.activations("shared", {tokens, c.hidden_size});
    sum = bench.run({.id = "ffn", .kind = OpKind::kMoeOutput}, {sum, given_value(shared)});
    pack.inputs.emplace_back("shared", shared);
  }
  pack.outputs.push_back({"", sum.stored, sum.estimate});
  return pack;
}

}  // namespace tools::op_pack
