#include "tools/faults/change.hpp"

#include <fnmatch.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "reference/values.hpp"

namespace tools::faults {
namespace {

bool matches(const std::string& glob, const std::string& id) {
  return fnmatch(glob.c_str(), id.c_str(), 0) == 0;
}

FaultyOp with_exchanged(const std::string& suffix, std::function<TensorView(const TensorView&)> change) {
  return [suffix, change = std::move(change)](const OpCall& call) {
    // A glob may also match ops without weights, and BF16 weights have no scales.
    const bool has_it = !call.op.weights.empty() &&
                        (suffix.empty() || call.weights.weight(call.op.weights.back()).dtype == model::DType::kF8E4M3);
    if (!has_it) {
      return reference::run_op(call);
    }
    const std::string name = call.op.weights.back() + suffix;
    ChangedWeights changed(call.weights);
    changed.exchange(name, change(call.weights.weight(name)));
    return run_with(call, changed);
  };
}

// Copies elements of `width` bytes: element i of the result is element from(i).
TensorView gathered(const TensorView& tensor, size_t width, const std::function<size_t(size_t)>& from) {
  auto bytes = std::make_shared<std::vector<std::byte>>(tensor.bytes.size());
  for (size_t i = 0; i < bytes->size() / width; ++i) {
    std::memcpy(bytes->data() + i * width, tensor.bytes.data() + from(i) * width, width);
  }
  return {tensor.dtype, tensor.shape, *bytes, bytes};
}

std::vector<int32_t> some_tokens(int32_t count, int32_t first) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < count; ++i) {
    ids.push_back((i * 37 + first) % 127);
  }
  return ids;
}

}  // namespace

TensorView run_with(const OpCall& call, const model::WeightSource& weights) {
  return reference::run_op({.rules = call.rules,
                            .workload = call.workload,
                            .weights = weights,
                            .op = call.op,
                            .inputs = call.inputs,
                            .expert_outputs = call.expert_outputs,
                            .num_threads = call.num_threads,
                            .flops = call.flops});
}

FaultyOp with_config(std::function<void(model::ModelConfig&)> change) {
  return [change = std::move(change)](const OpCall& call) {
    ChangedWeights changed(call.weights);
    change(changed.config());
    return run_with(call, changed);
  };
}

FaultyOp with_weight(std::function<TensorView(const TensorView&)> change) {
  return with_exchanged("", std::move(change));
}

FaultyOp with_scale(std::function<TensorView(const TensorView&)> change) {
  return with_exchanged("_scale_inv", std::move(change));
}

FaultyOp with_input(size_t input, std::function<TensorView(const TensorView&, const OpCall&)> change) {
  return [input, change = std::move(change)](const OpCall& call) {
    if (input >= call.inputs.size()) {
      return reference::run_op(call);  // the glob also matches a form of the op that does not read it
    }
    OpCall changed = call;
    changed.inputs[input] = change(call.inputs[input], call);
    return reference::run_op(changed);
  };
}

FaultyOp with_output(std::function<TensorView(const TensorView&, const OpCall&)> change) {
  return [change = std::move(change)](const OpCall& call) { return change(reference::run_op(call), call); };
}

TensorView from_values(const Values& values, model::Shape shape, model::DType dtype) {
  if (dtype == model::DType::kF64) {
    return reference::store<double>(std::move(shape), values, dtype);
  }
  return reference::store<float>(std::move(shape), std::vector<float>(values.begin(), values.end()), dtype);
}

TensorView edited(const TensorView& tensor, const std::function<void(Values&)>& change) {
  auto values = model::to_double(tensor);
  change(values);
  // Powers of two as scales may become other numbers.
  return from_values(values, tensor.shape, tensor.dtype == model::DType::kF8E8M0 ? model::DType::kF32 : tensor.dtype);
}

TensorView scaled(const TensorView& tensor, double factor) {
  return edited(tensor, [factor](Values& values) {
    for (double& value : values) {
      value *= factor;
    }
  });
}

TensorView rows_from(const TensorView& tensor, const std::function<int64_t(int64_t)>& from) {
  const auto row_bytes = static_cast<size_t>(tensor.row_len() * model::dtype_bytes(tensor.dtype));
  return gathered(tensor, row_bytes, [&](size_t row) { return static_cast<size_t>(from(static_cast<int64_t>(row))); });
}

TensorView columns_from(const TensorView& tensor, const std::function<int64_t(int64_t)>& from) {
  const auto row_len = static_cast<size_t>(tensor.row_len());
  return gathered(tensor, static_cast<size_t>(model::dtype_bytes(tensor.dtype)), [&](size_t i) {
    return i / row_len * row_len + static_cast<size_t>(from(static_cast<int64_t>(i % row_len)));
  });
}

double truncated_to_bf16(double value) {
  // Towards zero already on the way to FP32, so that nothing is rounded up first.
  auto single = static_cast<float>(value);
  if (std::abs(static_cast<double>(single)) > std::abs(value)) {
    single = std::nextafterf(single, 0.0F);
  }
  return std::bit_cast<float>(std::bit_cast<uint32_t>(single) & 0xFFFF0000U);
}

std::vector<golden::Case> prompt(int32_t num_tokens) {
  return {golden::prompt_case(some_tokens(num_tokens, 11))};
}

std::vector<golden::Case> prompt_and_step(int32_t num_tokens) {
  auto cases = prompt(num_tokens);
  cases.push_back({.name = "d0", .after = cases[0].name, .sequences = {{23}}});
  return cases;
}

std::vector<golden::Case> prompt_with_drafts(int32_t num_tokens, int32_t num_drafts) {
  auto cases = prompt(num_tokens);
  cases[0].mtp_ids = some_tokens(num_drafts, 5);
  return cases;
}

std::vector<golden::Case> batch_of_two() {
  return {{.name = "b2", .sequences = {some_tokens(4, 11), some_tokens(4, 60)}}};
}

Shown on_nano() {
  return {"synthetic:nano", prompt(5)};
}

Shown on_nano_step() {
  return {"synthetic:nano", prompt_and_step(5)};
}

Shown on_nano_mtp() {
  return {"synthetic:nano", prompt_with_drafts(5, 1)};
}

Shown on_ragged() {
  return {"synthetic:ragged", prompt(5)};
}

Shown on_notv3() {
  return {"synthetic:notv3", prompt(5)};
}

Shown on_edge() {
  std::vector<int32_t> ids(10);
  std::iota(ids.begin(), ids.end(), 0);
  return {"synthetic:edge", {golden::prompt_case(ids)}};
}

Fault make_fault(std::string id, std::string description, std::string starts_at, Shown shown, FaultyOp faulty) {
  const auto run = [glob = starts_at, faulty = std::move(faulty)](const OpCall& call) {
    return matches(glob, call.op.id) ? faulty(call) : reference::run_op(call);
  };
  return {std::move(id),
          std::move(description),
          std::move(starts_at),
          std::move(shown.fixture),
          std::move(shown.cases),
          run};
}

Fault make_fault_with_memory(std::string id,
                             std::string description,
                             std::string starts_at,
                             Shown shown,
                             std::string remembered,
                             std::function<TensorView(const OpCall&, const Memory&)> faulty) {
  const auto memory = std::make_shared<Memory>();
  const auto run =
      [glob = starts_at, remembered = std::move(remembered), faulty = std::move(faulty), memory](const OpCall& call) {
        auto value = matches(glob, call.op.id) ? faulty(call, *memory) : reference::run_op(call);
        if (matches(remembered, call.op.id)) {
          (*memory)[call.op.id] = value;
        }
        return value;
      };
  return {std::move(id),
          std::move(description),
          std::move(starts_at),
          std::move(shown.fixture),
          std::move(shown.cases),
          run};
}

}  // namespace tools::faults
