// The op list promises weights, FLOPs and bytes of every op. Here a forward pass of the reference is watched, and what
// it asked for, multiplied, read and wrote is held against those promises.
#include <gtest/gtest.h>

#include <set>

#include "model/tensor_catalog.hpp"
#include "reference/transformer.hpp"
#include "tests/reference/bits_of_runs.hpp"

namespace reference {
namespace {

using model::AttentionForm;
using model::OpKind;

// Notes the names of the tensors that are asked for and their bytes, between two calls of forget().
class RecordingWeights : public model::WeightSource {
 public:
  [[nodiscard]] const model::ModelConfig& config() const override { return mini().config(); }
  [[nodiscard]] model::TensorView weight(const std::string& name) const override {
    auto tensor = mini().weight(name);
    bytes_of_[name] = static_cast<int64_t>(tensor.bytes.size());
    return tensor;
  }
  void forget() const { bytes_of_.clear(); }
  [[nodiscard]] const std::map<std::string, int64_t>& bytes_of() const { return bytes_of_; }

 private:
  mutable std::map<std::string, int64_t> bytes_of_;
};

class AskingProbe : public model::Probe {
 public:
  [[nodiscard]] bool wants(const model::Op&) const override { return true; }
  void see(const model::Op&, const model::TensorView&) override {}
};

// What one op did; a grouped op is the sum of its parts.
struct Done {
  int64_t flops = 0;
  int64_t weight_bytes = 0;
  int64_t activation_bytes = 0;
  int64_t parts = 0;
};

// "layer.1.moe.expert.7.gate" -> "layer.1.moe.expert.*.gate": all parts of a grouped op under one name.
std::string list_id(const model::Op& op) {
  const std::string marker = ".moe.expert.";
  const size_t found = op.id.find(marker);
  if (op.expert < 0 || found == std::string::npos) {
    return op.id;
  }
  const size_t begin = found + marker.size();
  return op.id.substr(0, begin) + "*" + op.id.substr(begin + std::to_string(op.expert).size());
}

// Bytes of activations an op reads: every input whole and once, but the cache, which kv_bytes counts, and what an op
// has no need of. A norm after attention reads the two summands and not the stored sum; an expert's part only the rows
// of its tokens, so that the ids through which it finds them count once for all parts.
int64_t bytes_read(const OpCall& call, bool first_part) {
  int64_t read = 0;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const model::TensorView& input = call.inputs[i];
    const auto bytes = static_cast<int64_t>(input.bytes.size());
    const bool is_cache = call.op.inputs[i].starts_with("cache.");
    const bool is_stored_sum = call.op.kind == OpKind::kRmsNorm && call.inputs.size() == 3 && i == 0;
    const bool is_gathered = call.op.kind == OpKind::kLinear && call.inputs.size() == 2;
    if (is_cache || is_stored_sum) {
      continue;
    }
    if (!is_gathered) {
      read += bytes;
    } else if (i == 0) {
      const auto rows = static_cast<int64_t>(tokens_of_expert(call.inputs[1], call.op.expert).size());
      read += rows * bytes / input.num_rows();
    } else {
      read += first_part ? bytes : 0;
    }
  }
  for (const auto& output : call.expert_outputs) {
    read += static_cast<int64_t>(output.bytes.size());
  }
  return read;
}

// Bytes of the latent cache an op reads: its rows times the columns in which a NaN shows in the result.
int64_t cache_bytes_read(const OpCall& call) {
  int64_t bytes = 0;
  const auto before = bytes_of(run_op(call));
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!call.op.inputs[i].starts_with("cache.")) {
      continue;
    }
    const model::TensorView& cache = call.inputs[i];
    for (int64_t column = 0; column < cache.row_len(); ++column) {
      const auto codes = cache.codes<uint16_t>();
      std::vector<uint16_t> poisoned(codes.begin(), codes.end());
      for (int64_t row = 0; row < cache.num_rows(); ++row) {
        poisoned[static_cast<size_t>(row * cache.row_len() + column)] = 0x7FC0;
      }
      OpCall changed = call;
      changed.inputs[i] = model::make_tensor(model::DType::kBF16, cache.shape, std::move(poisoned));
      bytes += bytes_of(run_op(changed)) == before ? 0 : cache.num_rows() * model::dtype_bytes(cache.dtype);
    }
  }
  return bytes;
}

// Bytes of weights an op reads: whole tensors with their scales, but of the embedding only the rows of its tokens.
int64_t weight_bytes_read(const OpCall& call, const RecordingWeights& recorder) {
  if (call.op.kind == OpKind::kEmbed) {
    return call.inputs[0].size() * recorder.config().hidden_size * model::dtype_bytes(model::DType::kBF16);
  }
  int64_t bytes = 0;
  for (const auto& [name, tensor_bytes] : recorder.bytes_of()) {
    bytes += tensor_bytes;
  }
  return bytes;
}

struct Watched {
  std::map<std::string, Done> done;  // by id in the op list
  std::set<std::string> weights;     // names asked for, scales among them
};

// As many different tokens as the sequences need.
StepInput step_input(const std::vector<model::SequenceStep>& sequences,
                     AttentionForm form,
                     int64_t num_mtp_layers = 1) {
  StepInput input;
  input.workload = {.sequences = sequences, .attention_form = form, .num_mtp_layers = num_mtp_layers};
  for (int32_t t = 0; t < input.workload.num_tokens(); ++t) {
    input.tokens.push_back(t * 97 % 2048);
  }
  input.mtp_tokens.assign(static_cast<size_t>(num_mtp_layers), input.tokens);
  return input;
}

// A cache of zeros with as many rows as the sequences have cached.
LatentCache cache_for(const Rules& rules, const StepInput& input) {
  LatentCache cache;
  const auto& config = mini().config();
  for (int64_t layer = 0; layer < config.num_hidden_layers + input.workload.num_mtp_layers; ++layer) {
    for (size_t s = 0; s < input.workload.sequences.size(); ++s) {
      const model::Shape shape{input.workload.sequences[s].num_cached, config.latent_dim()};
      const auto size = static_cast<size_t>(model::num_elements(shape));
      cache.assign(layer,
                   static_cast<int64_t>(s),
                   rules.exact() ? model::make_tensor(model::DType::kF64, shape, std::vector<double>(size))
                                 : model::make_tensor(model::DType::kBF16, shape, std::vector<uint16_t>(size)));
    }
  }
  return cache;
}

Watched watch(const Rules& rules, const StepInput& input) {
  Watched watched;
  const RecordingWeights recorder;
  const auto run = [&](const OpCall& call) {
    recorder.forget();
    Done& done = watched.done[list_id(call.op)];
    OpCall counted = call;
    counted.flops = &done.flops;
    auto value = run_op(counted);
    const bool is_cache = call.op.kind == OpKind::kCacheLatent;
    done.activation_bytes +=
        bytes_read(call, done.parts == 0) + (is_cache ? 0 : static_cast<int64_t>(value.bytes.size()));
    done.weight_bytes += weight_bytes_read(call, recorder);
    ++done.parts;
    for (const auto& [name, bytes] : recorder.bytes_of()) {
      watched.weights.insert(name);
    }
    return value;
  };
  AskingProbe probe;
  auto cache = cache_for(rules, input);
  Transformer(recorder, rules, 1, run).step(input, cache, probe);
  return watched;
}

const Rules kV32 = v32_rules(Gemm::kFp8, model::ScaleFormat::kFp32);

struct Scenario {
  std::string name;
  std::vector<model::SequenceStep> sequences;
};

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> list{
      {"prefill", {{0, 9}}},
      {"decode", {{11, 1}}},
      {"draft verification", {{11, 3}}},
      {"ragged prefill", {{0, 5}, {0, 1}, {0, 8}}},
      {"ragged batch with a cache", {{4, 1}, {0, 6}, {9, 2}}},
  };
  return list;
}

// With 160 tokens every expert of every layer is visited.
TEST(OpListBinding, WeightsAskedFor_AreTheCatalogue) {
  std::set<std::string> catalogue;
  for (const auto& tensor : model::tensor_catalog(mini().config())) {
    catalogue.insert(tensor.name);
  }
  for (const Rules& rules : {kV32, exact_rules()}) {
    for (const auto form : {AttentionForm::kExpanded, AttentionForm::kAbsorbed}) {
      EXPECT_EQ(watch(rules, step_input({{0, 160}}, form)).weights, catalogue);
    }
  }
}

TEST(OpListBinding, WithoutMtp_NoWeightOfAnMtpLayerIsAskedFor) {
  const std::string mtp_layer = "model.layers." + std::to_string(mini().config().num_hidden_layers) + ".";
  for (const auto& name : watch(kV32, step_input({{0, 4}}, AttentionForm::kExpanded, 0)).weights) {
    EXPECT_FALSE(name.starts_with(mtp_layer)) << name;
  }
}

TEST(OpListBinding, FlopsDone_AreThePromisedOnes) {
  for (const Rules& rules : {kV32, v32_rules(Gemm::kBf16, model::ScaleFormat::kFp32), exact_rules()}) {
    for (const Scenario& scenario : scenarios()) {
      for (const auto form : {AttentionForm::kExpanded, AttentionForm::kAbsorbed}) {
        const auto input = step_input(scenario.sequences, form);
        const auto watched = watch(rules, input);
        for (const auto& op : model::op_list(mini().config(), input.workload)) {
          EXPECT_EQ(watched.done.at(op.id).flops, op.flops) << scenario.name << " " << op.id;
        }
      }
    }
  }
}

TEST(OpListBinding, ActivationBytesReadAndWritten_AreThePromisedOnes) {
  for (const Scenario& scenario : scenarios()) {
    for (const auto form : {AttentionForm::kExpanded, AttentionForm::kAbsorbed}) {
      const auto input = step_input(scenario.sequences, form);
      const auto watched = watch(kV32, input);
      for (const auto& op : model::op_list(mini().config(), input.workload)) {
        EXPECT_EQ(watched.done.at(op.id).activation_bytes, op.activation_bytes) << scenario.name << " " << op.id;
      }
    }
  }
}

// Writing the cache costs the new rows; reading it, the columns that are used.
TEST(OpListBinding, CacheBytesReadAndWritten_AreThePromisedOnes) {
  for (const std::vector<model::SequenceStep>& sequences :
       {std::vector<model::SequenceStep>{{5, 1}}, {{2, 2}, {0, 1}}}) {
    for (const auto form : {AttentionForm::kExpanded, AttentionForm::kAbsorbed}) {
      const auto input = step_input(sequences, form, 0);
      auto cache = cache_for(kV32, input);
      std::map<std::string, int64_t> moved;
      const auto run = [&](const OpCall& call) {
        auto value = run_op(call);
        const bool writes = call.op.kind == OpKind::kCacheLatent;
        const auto kept_bytes = writes ? static_cast<int64_t>(call.inputs[2].bytes.size()) : 0;
        moved[call.op.id] = writes ? static_cast<int64_t>(value.bytes.size()) - kept_bytes : cache_bytes_read(call);
        return value;
      };
      AskingProbe probe;
      Transformer(mini(), kV32, 1, run).step(input, cache, probe);
      for (const auto& op : model::op_list(mini().config(), input.workload)) {
        EXPECT_EQ(op.num_parts > 1 ? 0 : moved.at(op.id), op.kv_bytes) << op.id;
      }
    }
  }
}

// A visited part costs one part of the whole; the two products that share kv_b cost it once together.
TEST(OpListBinding, WeightBytesRead_AreThePromisedOnes) {
  for (const Scenario& scenario : scenarios()) {
    for (const auto form : {AttentionForm::kExpanded, AttentionForm::kAbsorbed}) {
      const auto input = step_input(scenario.sequences, form);
      const auto watched = watch(kV32, input);
      std::map<int64_t, int64_t> promised_kv_b;
      for (const auto& op : model::op_list(mini().config(), input.workload)) {
        const Done& done = watched.done.at(op.id);
        const bool shares_kv_b =
            op.kind == OpKind::kQueryLatent || (op.kind == OpKind::kAttentionContext && !op.weights.empty());
        if (shares_kv_b) {
          promised_kv_b[op.layer] += op.weight_bytes;
        } else {
          EXPECT_EQ(done.weight_bytes * op.num_parts, op.weight_bytes * done.parts) << scenario.name << " " << op.id;
        }
        if (op.kind == OpKind::kAttentionContext && shares_kv_b) {
          EXPECT_EQ(promised_kv_b[op.layer], done.weight_bytes) << scenario.name << " " << op.id;
        }
      }
    }
  }
}

}  // namespace
}  // namespace reference
