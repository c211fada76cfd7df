#include "tools/op_pack/judge.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "golden/element_test.hpp"
#include "golden/npy_file.hpp"
#include "model/safetensors.hpp"
#include "tools/op_pack/bench.hpp"
#include "tools/recompute.hpp"

namespace tools::op_pack {
namespace {

using model::TensorView;

std::vector<int64_t> coordinate_of(int64_t index, const model::Shape& shape) {
  std::vector<int64_t> coordinate(shape.size());
  for (size_t dim = shape.size(); dim-- > 0;) {
    coordinate[dim] = index % shape[dim];
    index /= shape[dim];
  }
  return coordinate;
}

// The test that dsv3-verify makes of a dump's tensor. Bytes stand for the codes of an FP8 output: numpy has no type for those.
OutputJudgement judge_interval(const std::string& name, const model::Estimate& estimate, TensorView got) {
  if (got.dtype == model::DType::kU8 && estimate.dtype == model::DType::kF8E4M3) {
    got.dtype = model::DType::kF8E4M3;
  }
  OutputJudgement judgement{.output = name, .num_elements = model::num_elements(estimate.shape)};
  if (got.shape != estimate.shape) {
    judgement.num_failed = judgement.num_elements;
    judgement.reason = "shape " + model::shape_text(got.shape) + ", expected " + model::shape_text(estimate.shape);
    return judgement;
  }
  // Rounding to a format needs neither weights nor rules.
  const MemoryWeights no_weights{model::ModelConfig{}};
  const ReferenceRecompute recompute(no_weights, reference::Rules{}, model::Workload{}, 1, 1);
  const auto test = golden::test_tensor(recompute, estimate, got, 1);
  judgement.num_failed = test.holds ? 0 : std::max<int64_t>(test.num_failed, 1);
  judgement.max_bound_use = test.max_bound_use;
  judgement.got = test.got;
  judgement.expected = test.expected;
  judgement.bound = test.bound;
  judgement.reason = test.reason;
  if (test.worst >= 0) {
    judgement.worst = coordinate_of(test.worst, estimate.shape);
  }
  return judgement;
}

TensorView tensor_of(const OpPack& pack, const std::string& name) {
  const auto found =
      std::find_if(pack.inputs.begin(), pack.inputs.end(), [&](const auto& item) { return item.first == name; });
  if (found == pack.inputs.end()) {
    model::throw_input_error("the op pack lacks tensor {}", name);
  }
  return found->second;
}

std::vector<int64_t> ids_of(const TensorView& tensor) {
  const auto numbers = model::to_double(tensor);
  std::vector<int64_t> ids;
  std::transform(numbers.begin(), numbers.end(), std::back_inserter(ids), [](double id) {
    return id >= 0 && id < 1e9 ? static_cast<int64_t>(id) : int64_t{-1};
  });
  return ids;
}

// What is wrong with one token's ids; empty if nothing.
std::string complaint(const std::set<int64_t>& chosen,
                      int64_t k,
                      std::span<const uint8_t> may,
                      std::span<const uint8_t> must) {
  if (static_cast<int64_t>(chosen.size()) != k) {
    return "an expert is chosen twice";
  }
  for (const int64_t id : chosen) {
    if (id < 0 || id >= static_cast<int64_t>(may.size())) {
      return "an id is no expert's";
    }
    if (may[static_cast<size_t>(id)] == 0) {
      return "expert " + std::to_string(id) + " is in no legal choice";
    }
  }
  for (size_t e = 0; e < must.size(); ++e) {
    if (must[e] != 0 && !chosen.contains(static_cast<int64_t>(e))) {
      return "expert " + std::to_string(e) + " is in every legal choice";
    }
  }
  return "";
}

OutputJudgement judge_choice(const OpPack& pack, const TensorView& expected, const TensorView& got) {
  OutputJudgement judgement{.output = "output", .num_elements = expected.num_rows()};
  if (got.shape != expected.shape) {
    judgement.num_failed = judgement.num_elements;
    judgement.reason = "shape " + model::shape_text(got.shape) + ", expected " + model::shape_text(expected.shape);
    return judgement;
  }
  const auto may = tensor_of(pack, "may_be_chosen");
  const auto must = tensor_of(pack, "must_be_chosen");
  const auto ids = ids_of(got);
  const int64_t k = expected.row_len();
  for (int64_t t = 0; t < expected.num_rows(); ++t) {
    const std::set<int64_t> chosen(ids.begin() + t * k, ids.begin() + (t + 1) * k);
    const auto what = complaint(chosen,
                                k,
                                model::slice_rows(may, t, t + 1).codes<uint8_t>(),
                                model::slice_rows(must, t, t + 1).codes<uint8_t>());
    if (!what.empty()) {
      judgement.num_failed += 1;
      if (judgement.reason.empty()) {
        judgement.reason = fmt::format("token {}: {}", t, what);
        judgement.worst = {t};
      }
    }
  }
  return judgement;
}

// The weights in the order in which the pack lists the experts. Tokens that chose others are taken out: their weights follow from
// scores of their own.
OutputJudgement judge_weights(const std::string& name,
                              const PackOutput& weights,
                              const TensorView& expected_ids,
                              const TensorView& got_ids,
                              const TensorView& got) {
  if (got.shape != expected_ids.shape || got_ids.shape != expected_ids.shape) {
    return judge_interval(name, weights.estimate, got);
  }
  const auto ours = ids_of(expected_ids);
  const auto theirs = ids_of(got_ids);
  const int64_t k = expected_ids.row_len();
  const int64_t width = model::dtype_bytes(got.dtype);
  auto bytes = std::make_shared<std::vector<std::byte>>();
  model::Estimate kept{{}, {}, {}, weights.estimate.dtype};
  int64_t num_kept = 0;
  for (int64_t t = 0; t < expected_ids.num_rows(); ++t) {
    const auto row = theirs.begin() + t * k;
    if (!std::is_permutation(row, row + k, ours.begin() + t * k)) {
      continue;
    }
    ++num_kept;
    for (int64_t slot = t * k; slot < (t + 1) * k; ++slot) {
      const int64_t their_slot = t * k + (std::find(row, row + k, ours[static_cast<size_t>(slot)]) - row);
      const auto element = got.bytes.subspan(static_cast<size_t>(their_slot * width), static_cast<size_t>(width));
      bytes->insert(bytes->end(), element.begin(), element.end());
      kept.value.push_back(weights.estimate.value[static_cast<size_t>(slot)]);
      kept.error.push_back(weights.estimate.error[static_cast<size_t>(slot)]);
    }
  }
  kept.shape = {num_kept, k};
  auto judgement = judge_interval(name, kept, {got.dtype, kept.shape, *bytes, bytes});
  if (num_kept < expected_ids.num_rows()) {
    judgement.note =
        fmt::format("{} tokens chose other experts; their weights were not judged", expected_ids.num_rows() - num_kept);
  }
  return judgement;
}

}  // namespace

std::map<std::string, TensorView> read_outputs(const std::filesystem::path& path, const OpPack& pack) {
  if (path.extension() == ".npy") {
    return {{"output", golden::read_npy(path)}};
  }
  if (path.extension() != ".safetensors") {
    model::throw_input_error("--output {}: expected a .safetensors or .npy file", path.string());
  }
  const auto file = model::read_safetensors(path);
  if (file.tensors.size() == 1) {
    return {{"output", file.tensors.begin()->second}};
  }
  std::map<std::string, TensorView> given;
  for (const PackOutput& output : pack.outputs) {
    const std::string full = tensor_name("output", output.name);
    for (const auto& name : {full, output.name}) {
      if (const auto found = file.tensors.find(name); found != file.tensors.end()) {
        given[full] = found->second;
      }
    }
  }
  return given;
}

std::vector<OutputJudgement> judge(const OpPack& pack, const std::map<std::string, TensorView>& given) {
  if (!given.contains("output")) {
    model::throw_input_error("--output: there is no tensor called output");
  }
  const bool is_choice = pack.outputs.front().estimate.value.empty();
  const TensorView& main = given.at("output");
  std::vector<OutputJudgement> judgements;
  for (const PackOutput& output : pack.outputs) {
    const std::string name = tensor_name("output", output.name);
    const auto found = given.find(name);
    if (found == given.end()) {
      continue;
    }
    if (is_choice && output.name.empty()) {
      judgements.push_back(judge_choice(pack, output.stored, found->second));
    } else if (is_choice && output.name == "weights") {
      judgements.push_back(judge_weights(name, output, pack.outputs.front().stored, main, found->second));
    } else {
      judgements.push_back(judge_interval(name, output.estimate, found->second));
    }
  }
  return judgements;
}

}  // namespace tools::op_pack
