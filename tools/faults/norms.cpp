// Faults in RMSNorm.
#include <cmath>
#include <numeric>

#include "reference/numerics/bf16.hpp"
#include "tools/faults/change.hpp"

namespace tools::faults {
namespace {

struct NormRow {
  std::span<const double> x;  // the whole input row, which may be longer than the norm
  std::span<const double> gain;
  double eps = 0;
};

double mean_square(std::span<const double> x) {
  return std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / static_cast<double>(x.size());
}

// Every row by `norm`, which is right but for the one thing that is wrong in it. Of the summands the norm after attention adds
// `with_input` leaves out the layer input.
FaultyOp norming(std::function<Values(const NormRow&)> norm, bool with_layer_input = true) {
  return [norm = std::move(norm), with_layer_input](const OpCall& call) {
    const bool after_attention = call.inputs.size() == 3;
    auto x = model::to_double(call.inputs[after_attention ? 1 : 0]);
    if (after_attention && with_layer_input) {
      const auto input = model::to_double(call.inputs[2]);
      for (size_t i = 0; i < x.size(); ++i) {
        x[i] += call.rules.exact() ? input[i] : reference::round_to_bf16(static_cast<float>(input[i]));
      }
    }
    const auto gain = model::to_double(call.weights.weight(call.op.weights[0]));
    const auto row_len = static_cast<size_t>(call.inputs[0].row_len());
    Values y;
    for (size_t begin = 0; begin < x.size(); begin += row_len) {
      const auto row = norm({std::span<const double>(x).subspan(begin, row_len), gain, call.config().rms_norm_eps});
      y.insert(y.end(), row.begin(), row.end());
    }
    const auto dtype = call.rules.exact() ? model::DType::kF64 : model::DType::kBF16;
    return from_values(y, {call.inputs[0].num_rows(), static_cast<int64_t>(gain.size())}, dtype);
  };
}

// x * inverse * gain over the norm's length.
Values normed(const NormRow& row, double inverse, double gain_offset = 0) {
  Values y(row.gain.size());
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = row.x[i] * inverse * (row.gain[i] + gain_offset);
  }
  return y;
}

double inverse_rms(const NormRow& row) {
  return 1 / std::sqrt(mean_square(row.x.first(row.gain.size())) + row.eps);
}

FaultyOp with_eps(double eps) {
  return with_config([eps](model::ModelConfig& config) { config.rms_norm_eps = eps; });
}

}  // namespace

std::vector<Fault> norm_faults() {
  std::vector<Fault> faults;
  faults.push_back(make_fault("bb-27",
                              "the norm of the latent has eps 1e-6 whatever the config says",
                              "layer.*.attn.kv_a_norm",
                              on_notv3(),
                              with_eps(1e-6)));
  faults.push_back(make_fault("k-77", "eps is 1e-5 instead of 1e-6", "layer.0.attn_norm", on_edge(), with_eps(1e-5)));
  faults.push_back(make_fault(
      "k-78", "eps is added outside the root", "layer.*.attn.kv_a_norm", on_notv3(), norming([](const NormRow& row) {
        return normed(row, 1 / (std::sqrt(mean_square(row.x.first(row.gain.size()))) + row.eps));
      })));
  faults.push_back(
      make_fault("k-79", "the gain is 1 + w", "layer.*.attn_norm", on_nano(), norming([](const NormRow& row) {
                   return normed(row, inverse_rms(row), 1);
                 })));
  faults.push_back(
      make_fault("k-80",
                 "the norm of the latent also averages the rope key",
                 "layer.*.attn.kv_a_norm",
                 on_nano(),
                 norming([](const NormRow& row) { return normed(row, 1 / std::sqrt(mean_square(row.x) + row.eps)); })));
  faults.push_back(make_fault("k-81",
                              "the mean is subtracted, as LayerNorm does",
                              "layer.*.ffn_norm",
                              on_nano(),
                              norming([](const NormRow& row) {
                                const double mean = std::accumulate(row.x.begin(), row.x.end(), 0.0) /
                                                    static_cast<double>(row.x.size());
                                Values x(row.x.begin(), row.x.end());
                                for (double& value : x) {
                                  value -= mean;
                                }
                                const NormRow centred{x, row.gain, row.eps};
                                return normed(centred, inverse_rms(centred));
                              })));
  faults.push_back(make_fault("k-82",
                              "the inverse root is rounded to BF16",
                              "layer.*.attn.q_a_norm",
                              on_nano(),
                              norming([](const NormRow& row) {
                                return normed(row, reference::round_to_bf16(static_cast<float>(inverse_rms(row))));
                              })));
  faults.push_back(
      make_fault("k-83", "the result is cut off to BF16", "final_norm", on_nano(), norming([](const NormRow& row) {
                   auto y = normed(row, inverse_rms(row));
                   for (double& value : y) {
                     value = truncated_to_bf16(value);
                   }
                   return y;
                 })));
  faults.push_back(make_fault("k-84",
                              "the norm before the experts sees the attention output without the layer input",
                              "layer.*.ffn_norm",
                              on_nano(),
                              norming([](const NormRow& row) { return normed(row, inverse_rms(row)); }, false)));
  faults.push_back(make_fault("k-85",
                              "the mean is taken over the padded length of 256",
                              "layer.*.attn.q_a_norm",
                              on_nano(),
                              norming([](const NormRow& row) {
                                const double padded = mean_square(row.x) * static_cast<double>(row.x.size()) / 256;
                                return normed(row, 1 / std::sqrt(padded + row.eps));
                              })));
  return faults;
}

}  // namespace tools::faults
