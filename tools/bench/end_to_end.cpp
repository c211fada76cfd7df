// Whole tokens through the executor: one step of a long prompt, and steps of one token behind it.
#include <algorithm>

#include "reference/transformer.hpp"
#include "tools/bench/reference_bench.hpp"
#include "tools/bench/timing.hpp"

namespace tools {
namespace {

constexpr int64_t kPromptLen = 256;
constexpr int64_t kDecodeFrom = 128;
constexpr int64_t kNumDecoded = 64;

// Wants nothing but the logits, as a generating program does.
class GreedyProbe : public model::Probe {
 public:
  [[nodiscard]] bool wants(const model::Op&) const override { return false; }
  void see(const model::Op& op, const model::TensorView& value) override {
    if (op.kind == model::OpKind::kHead) {
      const auto row = value.codes<float>().last(static_cast<size_t>(value.row_len()));
      next_ = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
    }
  }
  [[nodiscard]] int32_t next() const { return next_; }

 private:
  int32_t next_ = 0;
};

double macs_of(const model::ModelConfig& config, const model::Workload& workload) {
  double flops = 0;
  for (const auto& op : model::op_list(config, workload)) {
    flops += op.optional ? 0 : static_cast<double>(op.flops);
  }
  return flops / 2;
}

// One token after another, in one cache.
class Sequence {
 public:
  Sequence(const reference::Transformer& transformer, int64_t vocab_size, Clock clock)
      : transformer_(transformer), vocab_size_(vocab_size), clock_(clock) {}

  // Returns seconds.
  double prefill(int64_t num_tokens) {
    std::vector<int32_t> tokens(static_cast<size_t>(num_tokens));
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>(static_cast<int64_t>(i) * 389 % vocab_size_);
    }
    return step(std::move(tokens), model::AttentionForm::kExpanded);
  }
  double decode() { return step({probe_.next()}, model::AttentionForm::kAbsorbed); }
  [[nodiscard]] const model::Workload& last_workload() const { return input_.workload; }

 private:
  double step(std::vector<int32_t> tokens, model::AttentionForm form) {
    const auto count = static_cast<int64_t>(tokens.size());
    input_.workload = {.sequences = {{.num_cached = num_cached_, .num_new = count}}, .attention_form = form};
    input_.tokens = std::move(tokens);
    const double start_s = now_s(clock_);
    transformer_.step(input_, cache_, probe_);
    num_cached_ += count;
    return now_s(clock_) - start_s;
  }

  const reference::Transformer& transformer_;
  int64_t vocab_size_;
  Clock clock_;
  int64_t num_cached_ = 0;
  reference::StepInput input_;
  reference::LatentCache cache_;
  GreedyProbe probe_;
};

}  // namespace

std::vector<EndToEndRow> measure_end_to_end(const BenchFlags& flags, const model::WeightSource& weights) {
  const auto& config = weights.config();
  const auto gemm = config.quantization ? reference::Gemm::kFp8 : reference::Gemm::kBf16;
  const auto scale = config.quantization ? config.quantization->scale_fmt : model::ScaleFormat::kFp32;
  const reference::Transformer transformer(weights, reference::v32_rules(gemm, scale), flags.num_threads);
  EndToEndRow prefill{.phase = "prefill", .num_tokens = kPromptLen};
  EndToEndRow decode{.phase = "decode", .num_tokens = 1, .num_cached = kDecodeFrom};
  for (int repetition = 0; repetition < 5 * flags.num_repetitions; ++repetition) {
    Sequence whole(transformer, config.vocab_size, clock_of(flags.num_threads));
    const double prefill_s = whole.prefill(kPromptLen);
    prefill.tokens_per_s = std::max(prefill.tokens_per_s, kPromptLen / prefill_s);
    prefill.gmac_per_s = std::max(prefill.gmac_per_s, macs_of(config, whole.last_workload()) / prefill_s * 1e-9);
    Sequence growing(transformer, config.vocab_size, clock_of(flags.num_threads));
    growing.prefill(kDecodeFrom);
    double decode_s = 0;
    double decode_macs = 0;
    for (int64_t i = 0; i < kNumDecoded; ++i) {
      decode_s += growing.decode();
      decode_macs += macs_of(config, growing.last_workload());
    }
    decode.tokens_per_s = std::max(decode.tokens_per_s, kNumDecoded / decode_s);
    decode.gmac_per_s = std::max(decode.gmac_per_s, decode_macs / decode_s * 1e-9);
  }
  return {prefill, decode};
}

}  // namespace tools
