// What the op list says about the ops of one case, in either attention form: which there are and what shape a dump holds.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "golden/cases.hpp"
#include "model/config.hpp"
#include "model/op_list.hpp"
#include "model/tensor_view.hpp"

namespace golden {

class CaseOps {
 public:
  CaseOps(const model::ModelConfig& config, const std::vector<Case>& all, const Case& which);

  // Null when the model has no such op.
  [[nodiscard]] const model::Op* find(const std::string& id) const;

  // The tensor as we store it. Throws InputError that begins with `origin` when the shape is not the op's.
  [[nodiscard]] model::TensorView checked(const std::string& id,
                                          const model::Op& op,
                                          const model::TensorView& tensor,
                                          const std::string& origin) const;

 private:
  void add_expanded_cache(const model::ModelConfig& config, const model::Op& latent);

  const Case& case_;
  std::map<std::string, model::Op> ops_;
};

}  // namespace golden
