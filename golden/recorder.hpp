// A probe that keeps what it sees of one case, under the names of a golden file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "golden/cases.hpp"
#include "golden/store.hpp"
#include "model/probe.hpp"

namespace golden {

// How much of a tensor is kept.
enum class StoreForm { kValues, kHash, kSample };

struct StoreRule {
  std::string glob;  // of op ids
  StoreForm form = StoreForm::kValues;
};

// "hash" or "hash:*.moe.*,sample:*": forms with the globs they are for ("*" if none is given). Throws InputError that begins with
// `origin`.
std::vector<StoreRule> parse_store(const std::string& text, const std::string& origin);

class Recorder : public model::Probe {
 public:
  // Keeps the ops of which a glob (POSIX fnmatch; '*' also matches dots) matches the id; without globs every op that is not
  // optional. With `layers`, ops of other layers are left out; ops outside the layers (embed, final_norm, logits) stay.
  // final_norm and logits are cut to the rows of the case.
  // The first rule of `store` whose glob matches says how much is kept; values without one.
  explicit Recorder(Case recorded,
                    std::vector<std::string> globs = {},
                    std::vector<int64_t> layers = {},
                    std::vector<StoreRule> store = {});

  [[nodiscard]] bool wants(const model::Op& op) const override;
  // Shares the bytes with `value`, whose owner must keep them. An op is seen once.
  void see(const model::Op& op, const model::TensorView& value) override;

  // "<case>/<op>"
  [[nodiscard]] const std::map<std::string, model::TensorView>& tensors() const { return tensors_; }
  // The same names, of what is not kept whole.
  [[nodiscard]] const std::map<std::string, Reduced>& reduced() const { return reduced_; }

 private:
  Case case_;
  std::vector<std::string> globs_;
  std::vector<int64_t> layers_;
  std::vector<StoreRule> store_;
  std::map<std::string, Reduced> reduced_;
  std::map<std::string, model::TensorView> tensors_;
};

}  // namespace golden
