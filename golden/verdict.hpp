// The outcome of a comparison: one result for each op, a verdict for the file, and the first place where it goes wrong.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace golden {

enum class OpStatus {
  kSame,       // the reference's own bits
  kOrder,      // the profile's rule, sums in another order
  kVariant,    // another legal rule holds for the whole tensor
  kFlip,       // routing differs, inside the margin of the scores
  kDiverged,   // no legal rule gives this
  kUndecided,  // present, but something it would be recomputed from is not
  kMissing,    // needed, not in the dump, and no run of ops spans it
};

std::string_view status_name(OpStatus status);

// Where and how an op diverged.
struct Divergence {
  std::string op = {};
  std::string case_name = {};
  int64_t rank = 0;                      // of the dump; one-file dumps have rank 0
  int64_t token = -1;                    // row of the flattened step
  std::vector<int64_t> coordinate = {};  // of the worst element
  double got = 0;
  double expected = 0;
  double bound = 0;                     // what a legal result may differ by before its last rounding
  std::vector<std::string> reads = {};  // tensors of the dump it was recomputed from
  std::string reason = {};              // in words
};

struct OpResult {
  std::string case_name;
  std::string op;
  int64_t rank = 0;
  OpStatus status = OpStatus::kUndecided;
  std::string variant = {};  // name of the rule when status is kVariant
  std::string free_status =
      {};  // against the golden run, inputs not forced: "same", "differs" or "" if the golden lacks it
  double max_bound_use = 0;  // largest share of its bound that an element needs to round to what was got
  double max_ulp = 0;        // steps of the stored format from the rounded expected value
  double bias_z = 0;         // mean signed error in standard deviations
  double cosine = 1;         // against the golden run
  double calc_diff = 0;      // against the golden run
  // Error of the dump over error of the profile's own bits, both against exact arithmetic on the dump's inputs (root of the summed
  // squares). Only if it was asked for; infinite if the profile has no error here and the dump does.
  std::optional<double> oracle_ratio = {};
  std::string reason = {};  // what an undecided op misses; what else is to be said
  std::optional<Divergence> divergence = {};
};

struct Verdict {
  enum class Outcome { kPass, kFail, kUndecided };
  Outcome outcome = Outcome::kUndecided;
  std::string profile;
  std::string config_hash = {};  // model/config_hash of what was compared
  std::vector<OpResult> ops = {};
  std::vector<std::string> notes = {};  // said once: tensors taken from the golden, names not understood

  [[nodiscard]] const OpResult* first_divergence() const;
};

// Pass: every op judged, none diverged. Fail: one diverged (with `strict`, also a variant or a flip). Else undecided. Logits alone are never a pass.
Verdict::Outcome decide(const std::vector<OpResult>& ops, bool strict);

// {"verdict", "profile", "config_hash", "first_divergence", "ops", "undecided", "notes"} as docs/contracts.md pins it.
std::string to_json(const Verdict& verdict);
// JUnit: one suite a case, one test an op.
std::string to_junit(const Verdict& verdict);

}  // namespace golden
