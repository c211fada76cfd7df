// Legal variations of a run: what another correct engine may do differently. None of them may be called a fault.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "golden/store.hpp"
#include "tools/trials.hpp"

namespace tools {

// Other published rules move more than other orders do. The form of attention is a rule too: expanded with FP8 quantises the
// latent.
enum class LegalFreedom { kOrders, kOrdersAndRules };

struct LegalRun {
  std::string description;
  LegalFreedom freedom = LegalFreedom::kOrders;
  RecordJob job;          // ops, attention form, threads
  int64_t chunk_len = 0;  // prompts are fed in chunks of this many tokens; 0: at once
};

// A pure function of its arguments. Every op draws for itself: an order of its sums and rounding freedom in its functions (computed
// here, not by the reference), or another published rule (reference/variants.hpp), or neither.
LegalRun draw_legal_run(uint64_t seed, LegalFreedom freedom);

// Fixtures that legal runs go through, and the cases on each.
struct LegalPlace {
  std::string fixture;
  std::vector<golden::Case> cases;
};
const std::vector<LegalPlace>& legal_places();

Trial run_legally(Trials& trials, const LegalPlace& place, const LegalRun& run);

}  // namespace tools
