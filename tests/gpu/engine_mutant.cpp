// One line of the engine changed: a program with the changed file in place of the library's (engine_mutants.cmake). It runs the engine on
// the ranks of a layout and holds them against the reference. Arguments: tp ep dp slots op rank words. 0 if the first divergence is at an
// op that begins with `op` (none expected: "-"), on a rank with one of these digits (none: any), for a reason with these words in it.
#include <fmt/core.h>

#include <string>

#include "golden/compare.hpp"
#include "tools/common.hpp"
#include "tools/device/engine_dump.hpp"
#include "tools/recompute.hpp"
#include "tools/record.hpp"

namespace tools {
namespace {

golden::Verdict verify(const model::WeightSource& weights, const EngineDumpJob& job) {
  RecordJob recorded;
  recorded.mode = resolved({}, weights.config());
  recorded.cases = {{.name = "b4", .sequences = {{3, 1, 4}, {15, 92, 65, 35, 89}, {79}, {32, 38}}}};
  const auto golden = record(weights, recorded);
  const auto gathered = dump_ranks(
      weights, golden.manifest, [] { return gpu::make_emulated_backend({}); }, job);
  const auto rules = rules_of(mode_of(golden.manifest));
  auto verdict = golden::compare(
      weights.config(), golden, gathered.dump, {}, [&](const model::Workload& workload, double num_sigmas) {
        return std::make_unique<ReferenceRecompute>(weights, rules, workload, num_sigmas, 1);
      });
  golden::assign_ranks(gathered, verdict);
  return verdict;
}

int run(char** arguments) {
  const auto number = [&](int i) { return std::stoll(arguments[i]); };
  const auto checkpoint = open_checkpoint("synthetic:par");
  const auto& config = checkpoint.weights->config();
  EngineDumpJob job{.layout = {.tp = number(1), .ep = number(2), .dp = number(3)}};
  if (const int64_t num_slots = number(4); num_slots > 0) {  // in order, then from the first again
    job.expert_of_slot.resize(static_cast<size_t>(config.num_hidden_layers + config.num_nextn_predict_layers));
    for (auto& slots : job.expert_of_slot) {
      for (int64_t slot = 0; slot < num_slots; ++slot) {
        slots.push_back(slot % config.n_routed_experts);
      }
    }
  }
  const std::string op = arguments[5];
  const auto verdict = verify(*checkpoint.weights, job);
  const auto* first = verdict.first_divergence();
  if (first == nullptr) {
    fmt::print("no divergence\n");
    return op == "-" && verdict.outcome == golden::Verdict::Outcome::kPass ? 0 : 1;
  }
  fmt::print("{} on rank {}: {}\n", first->op, first->rank, first->reason);
  const std::string ranks = arguments[6];
  const bool is_right_rank =
      first->rank >= 0 && (ranks.empty() || ranks.find(std::to_string(first->rank)) != std::string::npos);
  return first->op.starts_with(op) && is_right_rank && first->reason.find(arguments[7]) != std::string::npos ? 0 : 1;
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  return argc == 8 ? tools::run(argv) : 2;
}
