#include "tools/legal_runs.hpp"

#include <algorithm>
#include <array>
#include <random>

#include "reference/variants.hpp"
#include "tools/faults/change.hpp"
#include "tools/legal/ops.hpp"

namespace tools {
namespace {

using model::TensorView;
using reference::OpCall;

// A seed that depends on the run and on the op, but not on the step: what an op drew holds for the whole run.
uint64_t seed_of(uint64_t run_seed, const std::string& op) {
  std::vector<uint32_t> parts(op.begin(), op.end());
  parts.push_back(static_cast<uint32_t>(run_seed));
  parts.push_back(static_cast<uint32_t>(run_seed >> 32));
  std::seed_seq mixed(parts.begin(), parts.end());
  std::array<uint32_t, 2> words{};
  mixed.generate(words.begin(), words.end());
  return uint64_t{words[0]} << 32 | words[1];
}

TensorView run_by_another_rule(const OpCall& call, uint64_t seed) {
  const auto variants = reference::rule_variants(call.rules, {call.op.kind});
  if (variants.empty()) {
    return reference::run_op(call);
  }
  const OpCall changed{.rules = variants[seed % variants.size()].rules,
                       .workload = call.workload,
                       .weights = call.weights,
                       .op = call.op,
                       .inputs = call.inputs,
                       .expert_outputs = call.expert_outputs,
                       .num_threads = call.num_threads};
  return reference::run_op(changed);
}

TensorView run_varied(uint64_t run_seed, LegalFreedom freedom, const OpCall& call) {
  std::mt19937_64 random(seed_of(run_seed, call.op.id));
  // Runs differ in how much of them is varied, so that an alarm shows alone as well as among others.
  const uint64_t share = run_seed % 4 + 1;
  if (random() % 4 >= share) {
    return reference::run_op(call);
  }
  if (freedom == LegalFreedom::kOrdersAndRules && random() % 3 == 0) {
    return run_by_another_rule(call, random());
  }
  legal::Order order(random());
  const auto value = legal::run_in_order(call, order);
  return value ? *value : reference::run_op(call);
}

// Rows of all parts, one part after another.
TensorView joined_rows(const std::vector<TensorView>& parts) {
  auto bytes = std::make_shared<std::vector<std::byte>>();
  model::Shape shape = parts.front().shape;
  shape.front() = 0;
  for (const TensorView& part : parts) {
    bytes->insert(bytes->end(), part.bytes.begin(), part.bytes.end());
    shape.front() += part.num_rows();
  }
  return {parts.front().dtype, shape, *bytes, bytes};
}

// Probabilities over more keys, the new ones not seen.
TensorView with_keys(const TensorView& probs, int64_t num_keys) {
  const auto width = static_cast<size_t>(model::dtype_bytes(probs.dtype));
  const size_t old_bytes = static_cast<size_t>(probs.shape[2]) * width;
  const size_t new_bytes = static_cast<size_t>(num_keys) * width;
  const auto rows = static_cast<size_t>(probs.shape[0] * probs.shape[1]);
  auto bytes = std::make_shared<std::vector<std::byte>>(rows * new_bytes);
  for (size_t row = 0; row < rows; ++row) {
    std::copy_n(probs.bytes.begin() + static_cast<int64_t>(row * old_bytes),
                old_bytes,
                bytes->begin() + static_cast<int64_t>(row * new_bytes));
  }
  return {probs.dtype, {probs.shape[0], probs.shape[1], num_keys}, *bytes, bytes};
}

// The prompt of the first case in chunks; what follows it follows the last chunk.
std::vector<golden::Case> chunked(std::vector<golden::Case> cases, int64_t chunk_len) {
  const golden::Case whole = cases.front();
  cases.erase(cases.begin());
  std::vector<golden::Case> chunks;
  const auto& tokens = whole.sequences.at(0);
  for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(chunk_len)) {
    const size_t end = std::min(begin + static_cast<size_t>(chunk_len), tokens.size());
    golden::Case chunk{.name = "chunk" + std::to_string(chunks.size())};
    chunk.after = chunks.empty() ? "" : chunks.back().name;
    chunk.sequences = {{tokens.begin() + static_cast<int64_t>(begin), tokens.begin() + static_cast<int64_t>(end)}};
    chunks.push_back(std::move(chunk));
  }
  for (golden::Case& step : cases) {
    step.after = step.after == whole.name ? chunks.back().name : step.after;
  }
  chunks.insert(chunks.end(), cases.begin(), cases.end());
  return chunks;
}

// Tensors of the chunks under the name of the whole prompt.
golden::GoldenFile joined_chunks(golden::GoldenFile run, const std::string& name) {
  std::map<std::string, std::vector<TensorView>> parts;
  std::map<std::string, TensorView> tensors;
  for (const auto& step : run.manifest.cases) {
    for (auto& [key, tensor] : run.tensors) {
      if (!key.starts_with(step.name + "/")) {
        continue;
      }
      if (step.name.starts_with("chunk")) {
        parts[key.substr(step.name.size() + 1)].push_back(tensor);
      } else {
        tensors[key] = tensor;
      }
    }
  }
  for (auto& [op, chunks] : parts) {
    const bool holds_all_keys = op.starts_with("cache.") || op.ends_with(".attn.kv_b");
    if (op.ends_with(".attn.probs")) {
      for (TensorView& chunk : chunks) {
        chunk = with_keys(chunk, chunks.back().shape[2]);
      }
    }
    tensors[name + "/" + op] = holds_all_keys ? chunks.back() : joined_rows(chunks);
  }
  run.tensors = std::move(tensors);
  return run;
}

}  // namespace

LegalRun draw_legal_run(uint64_t seed, LegalFreedom freedom) {
  std::mt19937_64 random(seed);
  LegalRun run;
  run.job.num_threads = static_cast<int>(random() % 3) + 1;
  run.freedom = freedom;
  if (freedom == LegalFreedom::kOrdersAndRules) {
    run.job.mode.attention = std::vector<std::string>{"", "", "naive", "absorbed"}[random() % 4];
  }
  if (random() % 3 == 0) {
    run.chunk_len = static_cast<int64_t>(random() % 4) + 1;
    run.job.mode.attention = "naive";
  }
  run.job.run = [seed, freedom](const OpCall& call) { return run_varied(seed, freedom, call); };
  run.description = fmt::format("seed {}: {} threads, attention {}, chunks of {}",
                                seed,
                                run.job.num_threads,
                                run.job.mode.attention.empty() ? "by-length" : run.job.mode.attention,
                                run.chunk_len);
  return run;
}

const std::vector<LegalPlace>& legal_places() {
  static const std::vector<LegalPlace> places{{"synthetic:edge", faults::on_edge().cases},
                                              {"synthetic:nano", faults::prompt_and_step(5)},
                                              {"synthetic:notv3", faults::prompt_with_drafts(5, 2)},
                                              {"synthetic:ragged", faults::prompt_and_step(5)},
                                              {"synthetic:nano", faults::batch_of_two()},
                                              {"synthetic:edge", faults::prompt_and_step(5)}};
  return places;
}

Trial run_legally(Trials& trials, const LegalPlace& place, const LegalRun& run) {
  const auto& first = place.cases.front();
  const bool one_prompt = first.sequences.size() == 1 && first.mtp_ids.empty();
  // Chunks of one token need the expanded form, which would be another rule for the steps that follow.
  const bool chunks_well = one_prompt && (run.freedom == LegalFreedom::kOrdersAndRules || place.cases.size() == 1);
  if (run.chunk_len == 0 || !chunks_well) {
    RecordJob job = run.job;
    job.mode.attention = run.freedom == LegalFreedom::kOrders ? "" : job.mode.attention;
    return trials.run(place.fixture, place.cases, job);
  }
  auto chunks = trials.record(place.fixture, chunked(place.cases, run.chunk_len), run.job);
  return trials.judge(place.fixture, place.cases, joined_chunks(std::move(chunks), first.name));
}

}  // namespace tools
