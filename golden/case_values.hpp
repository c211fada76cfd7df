// What is given when one case of a dump is judged: its tensors, the fed tokens, and the cache rows from before the step.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "golden/formats.hpp"
#include "golden/store.hpp"
#include "model/config.hpp"
#include "model/op_list.hpp"

namespace golden {

// The workload a case stands for: how much is cached before it, attention form, MTP layers.
model::Workload workload_of(const model::ModelConfig& config,
                            const GoldenFile& golden,
                            const Dump& dump,
                            const Case& step);

class CaseValues {
 public:
  // `earlier` are the values of the case this one follows, or null.
  CaseValues(const model::ModelConfig& config,
             const GoldenFile& golden,
             const Dump& dump,
             const Case& step,
             const model::Workload& workload,
             const CaseValues* earlier);

  // A tensor taken as given: from the dump, or the fed tokens. Null if not there.
  [[nodiscard]] const model::TensorView* find(const std::string& id) const;
  // The same as other ops read it: where the dump holds only the new rows of kv_b, or expanded keys and values in place of the
  // latent, the rows of all keys put together. Sets `assembled` if it is not the dump's own tensor.
  [[nodiscard]] const model::TensorView* input(const std::string& id, bool& assembled) const;
  // Cache rows from before this step, every sequence's, one after another. Null if they are not known. Each row comes from the
  // nearest earlier step that has it (its dumped cache, or what it fed), else from this step's own dumped cache, else from the
  // golden run (then from_golden says so).
  [[nodiscard]] const model::TensorView* cached_before(const std::string& cache_id) const;
  [[nodiscard]] bool from_golden(const std::string& cache_id) const { return from_golden_.contains(cache_id); }
  // The golden run's value of this case, or null.
  [[nodiscard]] const model::TensorView* golden(const std::string& id) const;
  // What the golden file kept of a value in place of the whole, or null; and its sample, or null.
  [[nodiscard]] const Reduced* reduced(const std::string& id) const;
  [[nodiscard]] const model::TensorView* sample(const std::string& id) const;
  // Whether the dump holds the bits that the golden run had, by the golden file's hashes.
  [[nodiscard]] bool has_golden_bits(const std::string& id) const;

  [[nodiscard]] const Case& step() const { return step_; }
  [[nodiscard]] const model::Workload& workload() const { return workload_; }
  [[nodiscard]] const CaseValues* earlier() const { return earlier_; }  // null for the first
  // True if the rows that cached_before() gives had to be taken from the golden file.
  [[nodiscard]] bool cached_from_golden(const std::string& cache_id) const;

 private:
  void add_cache(int64_t layer, const std::string& prefix);
  std::optional<model::TensorView> rows_before(const std::string& cache_id);
  // The naive form: kv_b rows of all keys from earlier steps or the expanded cache, and its rope keys.
  void add_expanded(const model::ModelConfig& config, int64_t layer, const std::string& prefix);

  const GoldenFile& golden_;
  const Dump& dump_;
  Case step_;
  model::Workload workload_;
  const CaseValues* earlier_;
  std::map<std::string, model::TensorView> tokens_;
  std::map<std::string, model::TensorView> cache_before_;
  std::map<std::string, model::TensorView> cache_after_;  // dumped, or joined from cache_before_ and what the step fed
  std::map<std::string, model::TensorView> assembled_;
  std::set<std::string> from_golden_;
};

}  // namespace golden
