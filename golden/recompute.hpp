// What a comparison needs from whoever knows the arithmetic: any op of one step, recomputed from given inputs. The comparison
// itself holds no arithmetic; tools bind this to the reference.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "model/estimate.hpp"
#include "model/op_list.hpp"
#include "model/tensor_view.hpp"

namespace golden {

// Everything one op reads, in the order of op.inputs; expert_outputs for a combine, by expert.
template <typename Tensor>
struct OpInputs {
  std::vector<Tensor> inputs;
  std::vector<Tensor> expert_outputs;
};

// How one token's choice of experts (or groups) relates to the reference's.
struct ChoiceResult {
  enum class Kind { kSame, kReordered, kFlip, kWrong };
  Kind kind = Kind::kSame;
  std::vector<int32_t> expected;
  int64_t outsider_rank = -1;  // rank the reference gives to the first expert that only the other side chose
  std::string reason;
};

class Recompute {
 public:
  virtual ~Recompute() = default;

  // Names of the rules other than the profile's own that a run of ops of these kinds may follow. The profile's own is "".
  [[nodiscard]] virtual std::vector<std::string> variants(const std::set<model::OpKind>& kinds) const = 0;

  // The op before its last rounding, with the narrow bound of a legal result, under a variant.
  [[nodiscard]] virtual model::Estimate estimate(const model::Op& op,
                                                 const OpInputs<model::Estimate>& inputs,
                                                 const std::string& variant) const = 0;
  // The same after it is stored: flips stay only where the interval straddles a rounding boundary.
  [[nodiscard]] virtual model::Estimate stored(const model::Estimate& estimate) const = 0;
  // The reference's own bits under the profile.
  [[nodiscard]] virtual model::TensorView bits(const model::Op& op,
                                               const OpInputs<model::TensorView>& inputs) const = 0;

  // The op in exact arithmetic (FP64, nothing quantised) on the same inputs.
  [[nodiscard]] virtual model::TensorView exact(const model::Op& op,
                                                const OpInputs<model::TensorView>& inputs) const = 0;

  // One judgement a token for router_groups or router_experts. scores [tokens, experts]; chosen [tokens, k]; kept groups
  // [tokens, topk_group] if they are given, else null: then any groups that the scores admit.
  [[nodiscard]] virtual std::vector<ChoiceResult> judge_choice(const model::Op& op,
                                                               const model::Estimate& scores,
                                                               const model::TensorView* kept_groups,
                                                               const model::TensorView& chosen) const = 0;

  // Nearest number of a storage format, and the distance to the next one.
  [[nodiscard]] virtual double round_to(model::DType format, double value) const = 0;
  [[nodiscard]] virtual double ulp(model::DType format, double value) const = 0;
};

}  // namespace golden
