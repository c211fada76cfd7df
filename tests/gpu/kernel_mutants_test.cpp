// Kernels with one line changed: the verifier names the op that goes wrong first and the kernel that computed it, the emulation names the
// line where a missing barrier or fence shows; the same kernels compiled the same way with no line changed pass. A changed line that
// changes no byte proves nothing and fails its test. The list is mutants.cmake.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "gpu/emulation/fault.hpp"
#include "gpu/engine/kernel_of.hpp"
#include "tests/tools/verifier.hpp"
#include "tools/common.hpp"
#include "tools/device/engine_dump.hpp"
#include "tools/device/kernel_faults.hpp"
#include "tools/synthetic/generator.hpp"

namespace tools {

const std::vector<KernelMutant>& test_mutants();  // written when CMake configures

// How GoogleTest names one.
void PrintTo(const KernelMutant& mutant, std::ostream* out) {
  *out << mutant.breaks;
}

namespace {

// What of the engine's shapes the fixtures do not have: a linear whose K is cut into splits, and into no parts.
std::unique_ptr<model::WeightSource> with_long_rows() {
  auto fixture = *synthetic::find_fixture("nano");
  fixture.config.hidden_size = 2048;
  fixture.config.num_hidden_layers = 1;
  fixture.config.num_nextn_predict_layers = 0;
  return std::make_unique<synthetic::SyntheticWeights>(std::move(fixture), 0);
}

// A golden file of a prompt and a step of decoding, or two where one has to find what another left; with drafts where the model has them.
struct Golden {
  explicit Golden(const std::string& name) {
    static const std::map<std::string, std::pair<std::string, std::vector<int32_t>>> known{
        {"edge", {"edge", {0, 1, 4, 2}}},
        {"even", {"nano", {3, 1, 4, 15, 92, 6}}},
        {"long", {"nano", longer_than_a_page()}},
        {"nano", {"nano", {3, 1, 4, 15, 92}}},
        {"par", {"par", {5, 2, 77}}},
        {"splits", {"", {3, 1, 4}}},
    };
    const auto& [fixture, ids] = known.at(name);
    weights = fixture.empty() ? with_long_rows() : open_checkpoint("synthetic:" + fixture).weights;
    const model::ModelConfig& config = weights->config();
    RecordJob job;
    job.mode = resolved({}, config);
    job.cases = {golden::prompt_case(ids)};
    job.num_decode = name == "par" ? 2 : 1;
    job.with_mtp = config.num_nextn_predict_layers > 0;
    job.num_threads = 2;
    file = record(*weights, job);
    unchanged = dump_engine(*weights, file.manifest, gpu::make_emulated_backend({}), {});
  }

  // Made once for all mutants that it shows.
  static const Golden& of(const std::string& name) {
    static std::map<std::string, Golden> made;
    return made.try_emplace(name, name).first->second;
  }

  static std::vector<int32_t> longer_than_a_page() {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < gpu::kPageRows + 56; ++i) {
      ids.push_back(i * 37 % 512);
    }
    return ids;
  }

  [[nodiscard]] golden::Verdict judge(const golden::Dump& dump) const {
    const auto& m = file.manifest;
    const auto rules = rules_of({m.mode, m.profile, m.gemm, m.scale, m.attention});
    return golden::compare(weights->config(), file, dump, {}, [&](const model::Workload& workload, double num_sigmas) {
      return std::make_unique<ReferenceRecompute>(*weights, rules, workload, num_sigmas, 2);
    });
  }

  std::unique_ptr<model::WeightSource> weights;
  golden::GoldenFile file;
  golden::Dump unchanged;  // what the kernels compute as they are
};

// "layer.1.moe.expert.*.gate" for any expert's.
std::string any_expert(std::string op) {
  const std::string marker = ".expert.";
  if (const size_t at = op.find(marker); at != std::string::npos) {
    const size_t begin = at + marker.size();
    op.replace(begin, op.find_first_not_of("0123456789", begin) - begin, "*");
  }
  return op;
}

// The first tensor, in the order of names, that differs in a byte or that one alone has (an expert without tokens); empty if none does.
std::string first_difference(const golden::Dump& a, const golden::Dump& b) {
  for (const auto* const dump : {&a, &b}) {
    const auto& others = (dump == &a ? b : a).tensors;
    for (const auto& [name, tensor] : dump->tensors) {
      const auto other = others.find(name);
      if (other == others.end() || !std::ranges::equal(tensor.bytes, other->second.bytes)) {
        return name;
      }
    }
  }
  return {};
}

class KernelMutants : public testing::TestWithParam<KernelMutant> {};

TEST_P(KernelMutants, AreCaughtAndNamed) {
  const KernelMutant& mutant = GetParam();
  const Golden& golden = Golden::of(mutant.cases);
  const model::ModelConfig& config = golden.weights->config();
  const auto run = [&] {
    return dump_engine(*golden.weights, golden.file.manifest, make_faulty_backend({}, mutant.is_race, mutant), {});
  };
  if (mutant.is_race) {
    try {
      (void)run();
      FAIL() << "no race found: " << mutant.breaks;
    } catch (const gpu::emulation::Fault& fault) {
      const std::string what = fault.what();
      // An index that is read too early may lead out of its array before the race itself is reported.
      EXPECT_TRUE(fault.kind == gpu::emulation::FaultKind::kRace ||
                  fault.kind == gpu::emulation::FaultKind::kOutOfBounds ||
                  fault.kind == gpu::emulation::FaultKind::kSharedOverrun)
          << what;
      EXPECT_NE(what.find("kernel " + mutant.kernel + ","), std::string::npos) << what;
      EXPECT_NE(what.find("/" + mutant.file + ":"), std::string::npos) << what;
    }
    return;
  }
  const auto dump = run();
  const auto difference = first_difference(golden.unchanged, dump);
  if (!mutant.op.empty()) {
    ASSERT_NE(difference, "") << mutant.id << " changes no byte of case " << mutant.cases
                              << ": its line is not reached, or does nothing there";
  }
  const auto verdict = golden.judge(dump);
  const auto* const first = verdict.first_divergence();
  if (mutant.op.empty()) {
    EXPECT_EQ(difference, "");
    EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << complaints(verdict);
    return;
  }
  ASSERT_NE(first, nullptr) << "not found: " << mutant.breaks << ", though it changes " << difference;
  EXPECT_EQ(first->case_name + "/" + any_expert(first->op), mutant.op) << first->divergence->reason;
  const auto form =
      first->case_name.starts_with("p") ? model::AttentionForm::kExpanded : model::AttentionForm::kAbsorbed;
  auto kernels = gpu::kernels_in_front_of(config, form, first->op);
  kernels.push_back(gpu::kernel_of(config, form, first->op));
  EXPECT_NE(std::ranges::find(kernels, mutant.kernel), kernels.end()) << first->op;
}

std::string name_of(const testing::TestParamInfo<KernelMutant>& info) {
  std::string name = info.param.id;
  std::ranges::replace(name, '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(OfTheProgram, KernelMutants, testing::ValuesIn(kernel_faults()), name_of);
INSTANTIATE_TEST_SUITE_P(OfTheTests, KernelMutants, testing::ValuesIn(test_mutants()), name_of);

}  // namespace
}  // namespace tools
