// What the fullest rank of an expert-parallel group has to do in a layer, in the mean over layers: experts that some token chose and
// token copies. Popularity is log-normal and fixed for a layer; placement is contiguous, or balanced as EPLB leaves it.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

namespace simulator {

struct ExpertGroup {
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  int64_t num_ranks = 1;        // that share the experts
  int64_t redundant_slots = 0;  // copies of hot experts
  bool balanced = false;        // EPLB
};

struct ExpertShare {
  double active = 0;       // experts with at least one token, on the rank where they and the copies cost most
  double copies = 0;       // token copies there
  double mean_active = 0;  // over ranks
  double mean_copies = 0;
};

// Expectations over popularity draws; the draws are the same for every call, so that answers are smooth in the number of tokens.
// Remembers what it has computed. Not for several threads.
class ExpertShares {
 public:
  // sigma: of the logarithm of popularity; 1.05 matches DeepSeek-R1's four published moments (EP32, translation; TensorRT-LLM
  // blog 4).
  explicit ExpertShares(double sigma = 1.05);

  // num_tokens: of all ranks together, above 0.
  const ExpertShare& share(const ExpertGroup& group, double num_tokens);

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, bool, int64_t>;
  double sigma_;
  std::map<std::pair<int64_t, int64_t>, std::vector<std::vector<double>>>
      chances_;  // by experts and top-k: [layer][expert]
  std::map<Key, ExpertShare> known_;
};

}  // namespace simulator
