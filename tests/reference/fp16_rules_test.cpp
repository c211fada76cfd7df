// Profile fp16: 16-bit numbers in FP16, and the residual stream in units that leave it room. What is right is said by exact mode.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "reference/residual_stream.hpp"
#include "tests/reference/small_model.hpp"

namespace reference {
namespace {

const Rules kFp16 = fp16_rules(Gemm::kBf16, model::ScaleFormat::kFp32);
const Rules kBf16 = v32_rules(Gemm::kBf16, model::ScaleFormat::kFp32);

Rules unscaled() {
  Rules rules = kFp16;
  rules.stream = StreamUnits::kModel;
  return rules;
}

class Recorder : public model::Probe {
 public:
  [[nodiscard]] bool wants(const model::Op&) const override { return true; }
  void see(const model::Op& op, const model::TensorView& value) override {
    values[op.id] = model::to_double(value);
    dtypes[op.id] = value.dtype;
  }
  std::map<std::string, std::vector<double>> values;
  std::map<std::string, model::DType> dtypes;
};

Recorder run(const HandMadeWeights& weights,
             const Rules& rules,
             model::AttentionForm form = model::AttentionForm::kExpanded) {
  Recorder recorder;
  LatentCache cache;
  for (const auto& step : two_steps(form, weights.config().vocab_size)) {
    Transformer(weights, rules, 1).step(step, cache, recorder);
  }
  return recorder;
}

HandMadeWeights model_of(int64_t num_dense_layers, double eps = 1e-6) {
  auto config = small_config();
  config.num_hidden_layers = 3;
  config.first_k_dense_replace = num_dense_layers;
  config.rms_norm_eps = eps;
  config.quantization.reset();
  return random_weights(config, 11);
}

double largest(const std::vector<double>& values) {
  return std::abs(*std::ranges::max_element(values, {}, [](double v) { return std::abs(v); }));
}

bool all_finite(const std::vector<double>& values) {
  return std::ranges::all_of(values, [](double v) { return std::isfinite(v); });
}

// |got - expected| / |expected|, 2-norms.
double distance(const std::vector<double>& got, const std::vector<double>& expected) {
  double difference = 0;
  double length = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - expected[i]) * (got[i] - expected[i]);
    length += expected[i] * expected[i];
  }
  return std::sqrt(difference / length);
}

// The first layer's attention writes numbers up to 100,000 into the stream: more than FP16's 65,504, less than 2.5 times that.
HandMadeWeights with_large_stream(HandMadeWeights weights) {
  const std::string name = "model.layers.0.self_attn.o_proj.weight";
  const auto o_proj = weights.weight(name);
  const double factor = 100000 / largest(run(weights, exact_rules()).values.at("layer.0.attn.o_proj"));
  auto values = model::to_double(o_proj);
  std::vector<float> larger;
  for (const double value : values) {
    larger.push_back(round_to_bf16(static_cast<float>(value * factor)));
  }
  weights.set(name, bf16(o_proj.shape, larger));
  return weights;
}

const std::vector<std::string> kOutcomes{"final_norm", "logits", "mtp.0.norm", "mtp.0.logits"};

// FP16 has three binary digits more than BF16, so it has to be nearer to exact mode, by far. A factor that is applied once too often
// or not at all, in whichever layer, moves these values by tens of percent.
void expect_nearer_than_bf16(const HandMadeWeights& weights, const std::string& what) {
  const auto exact = run(weights, exact_rules());
  const auto bf16_run = run(weights, kBf16);
  const auto fp16_run = run(weights, kFp16);
  for (const auto& id : kOutcomes) {
    const double ours = distance(fp16_run.values.at(id), exact.values.at(id));
    EXPECT_LT(ours, 0.5 * distance(bf16_run.values.at(id), exact.values.at(id))) << what << ": " << id;
    EXPECT_LT(ours, 0.01) << what << ": " << id;
  }
}

TEST(Fp16Rules, AnyNumberOfDenseLayers_IsNearerToExactThanBf16) {
  for (const int64_t dense : {0, 1, 2, 3}) {
    expect_nearer_than_bf16(model_of(dense), std::to_string(dense) + " dense layers");
  }
}

// With an epsilon of the size of the mean square itself: a norm that keeps it while its input is 2.5 times smaller is off by half.
TEST(Fp16Rules, LargeEpsilon_FollowsTheUnitsOfTheStream) {
  expect_nearer_than_bf16(model_of(1, 0.5), "eps 0.5");
}

TEST(Fp16Rules, StreamBeyondFp16_OverflowsUnscaledAndIsRightScaled) {
  for (const int64_t dense : {0, 1, 2, 3}) {
    const auto weights = with_large_stream(model_of(dense));
    const std::string what = std::to_string(dense) + " dense layers";
    const auto plain = run(weights, unscaled());
    EXPECT_FALSE(all_finite(plain.values.at("layer.0.attn_residual"))) << what;
    EXPECT_FALSE(all_finite(plain.values.at("logits"))) << what;
    const auto scaled = run(weights, kFp16);
    EXPECT_GT(largest(scaled.values.at("layer.0.attn_residual")), 65504 / 2.5)
        << what;  // or the fixture would show nothing
    for (const auto& [id, values] : scaled.values) {
      EXPECT_TRUE(all_finite(values)) << what << ": " << id;
    }
    expect_nearer_than_bf16(weights, what);
  }
}

TEST(Fp16Rules, TheStream_IsTheExactOneOverTheRoutedFactor) {
  const auto weights = model_of(1);
  const auto exact = run(weights, exact_rules());
  const auto scaled = run(weights, kFp16);
  for (const char* id : {"embed",
                         "layer.0.attn.o_proj",
                         "layer.0.attn_residual",
                         "layer.0.ffn",
                         "layer.0.output",
                         "layer.1.moe.shared",
                         "layer.1.moe.routed",
                         "layer.1.moe.topk_weights",
                         "layer.1.ffn",
                         "layer.2.output",
                         "mtp.0.embed",
                         "mtp.0.eh_proj",
                         "mtp.0.layer.output"}) {
    auto expected = exact.values.at(id);
    std::ranges::for_each(expected, [](double& value) { value /= 2.5; });
    EXPECT_LT(distance(scaled.values.at(id), expected), 0.01) << id;
  }
  for (const char* id : {"layer.0.attn_norm", "layer.1.moe.expert.1", "mtp.0.hnorm", "mtp.0.enorm"}) {
    if (scaled.values.contains(id)) {
      EXPECT_LT(distance(scaled.values.at(id), exact.values.at(id)), 0.01) << id;
    }
  }
}

TEST(Fp16Rules, AbsorbedAttention_AgreesWithExpanded) {
  const auto weights = model_of(1);
  const auto expanded = run(weights, kFp16);
  const auto absorbed = run(weights, kFp16, model::AttentionForm::kAbsorbed);
  EXPECT_LT(distance(absorbed.values.at("logits"), expanded.values.at("logits")), 0.01);
}

TEST(Fp16Rules, EverythingThatV32StoresAsBf16_IsStoredAsFp16) {
  const auto weights = model_of(1);
  const auto in_bf16 = run(weights, kBf16);
  const auto in_fp16 = run(weights, kFp16);
  for (const auto& [id, dtype] : in_bf16.dtypes) {
    if (in_fp16.dtypes.contains(id)) {  // experts that only one of the two visits
      EXPECT_EQ(in_fp16.dtypes.at(id), dtype == model::DType::kBF16 ? model::DType::kF16 : dtype) << id;
    }
  }
}

TEST(Fp16Rules, OtherProfiles_LeaveTheStreamAlone) {
  const auto config = small_config();
  const model::Op o_proj{.id = "layer.0.attn.o_proj", .kind = model::OpKind::kLinear};
  const model::Op norm{.id = "layer.0.attn_norm", .kind = model::OpKind::kRmsNorm};
  for (const Rules& rules : {kBf16, hf_rules(), v3_demo_rules(Gemm::kBf16, model::ScaleFormat::kFp32), exact_rules()}) {
    EXPECT_EQ(output_unit(rules, config, o_proj), 1.0f);
    EXPECT_EQ(norm_eps(rules, config, norm), config.rms_norm_eps);
    EXPECT_EQ(routed_factor(rules, config), config.routed_scaling_factor);
  }
}

}  // namespace
}  // namespace reference
