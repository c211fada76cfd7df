// Binds golden::Recompute to the reference: the comparison's arithmetic is the reference's.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "golden/recompute.hpp"
#include "model/weight_source.hpp"
#include "reference/rules.hpp"

namespace tools {

class ReferenceRecompute : public golden::Recompute {
 public:
  ReferenceRecompute(const model::WeightSource& weights,
                     reference::Rules rules,
                     const model::Workload& workload,
                     double num_sigmas,
                     int num_threads);

  [[nodiscard]] std::vector<std::string> variants(const std::set<model::OpKind>& kinds) const override;
  [[nodiscard]] model::Estimate estimate(const model::Op& op,
                                         const golden::OpInputs<model::Estimate>& inputs,
                                         const std::string& variant) const override;
  [[nodiscard]] model::Estimate stored(const model::Estimate& estimate) const override;
  [[nodiscard]] model::TensorView bits(const model::Op& op,
                                       const golden::OpInputs<model::TensorView>& inputs) const override;
  [[nodiscard]] model::TensorView exact(const model::Op& op,
                                        const golden::OpInputs<model::TensorView>& inputs) const override;
  [[nodiscard]] std::vector<golden::ChoiceResult> judge_choice(const model::Op& op,
                                                               const model::Estimate& scores,
                                                               const model::TensorView* kept_groups,
                                                               const model::TensorView& chosen) const override;
  [[nodiscard]] double round_to(model::DType format, double value) const override;
  [[nodiscard]] double ulp(model::DType format, double value) const override;

 private:
  [[nodiscard]] model::TensorView run(const model::Op& op,
                                      const golden::OpInputs<model::TensorView>& inputs,
                                      const reference::Rules& rules) const;

  const model::WeightSource& weights_;
  reference::Rules rules_;
  model::Workload workload_;
  double num_sigmas_;
  int num_threads_;
  mutable std::map<std::string, reference::Rules> variants_;  // by name, as far as they were asked for
};

}  // namespace tools
