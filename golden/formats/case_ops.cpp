#include "golden/formats/case_ops.hpp"

#include <algorithm>
#include <charconv>

#include "model/check.hpp"

namespace golden {

using model::Shape;
using model::TensorView;
using model::throw_input_error;

CaseOps::CaseOps(const model::ModelConfig& config, const std::vector<Case>& all, const Case& which) : case_(which) {
  model::Workload workload{.sequences = sequence_steps(all, which),
                           .attention_form = model::AttentionForm::kExpanded,
                           .num_mtp_layers = config.num_nextn_predict_layers};
  for (const auto form : {model::AttentionForm::kExpanded, model::AttentionForm::kAbsorbed}) {
    workload.attention_form = form;
    for (model::Op& op : model::op_list(config, workload)) {
      if (op.kind == model::OpKind::kCacheLatent) {
        add_expanded_cache(config, op);
      }
      ops_.emplace(op.id, std::move(op));
    }
  }
}

const model::Op* CaseOps::find(const std::string& id) const {
  if (const auto found = ops_.find(id); found != ops_.end()) {
    return &found->second;
  }
  // A part of a grouped op: "layer.3.moe.expert.7.gate" belongs to "layer.3.moe.expert.*.gate".
  constexpr std::string_view kMark = ".expert.";
  const size_t mark = id.find(kMark);
  if (mark == std::string::npos) {
    return nullptr;
  }
  const size_t begin = mark + kMark.size();
  const size_t end = std::min(id.find('.', begin), id.size());
  const auto found = ops_.find(id.substr(0, begin) + '*' + id.substr(end));
  int64_t expert = -1;
  std::from_chars(id.data() + begin, id.data() + end, expert);
  const bool known = found != ops_.end() && 0 <= expert && expert < found->second.num_parts &&
                     std::to_string(expert) == id.substr(begin, end - begin);
  return known ? &found->second : nullptr;
}

TensorView CaseOps::checked(const std::string& id,
                            const model::Op& op,
                            const TensorView& tensor,
                            const std::string& origin) const {
  Shape expected = op.shape;
  const int64_t num_rows = tensor.num_rows();
  const bool cut = (id == "final_norm" || id == "logits") && !case_.rows.empty();
  const auto num_stored = static_cast<int64_t>(case_.rows.size());
  if (op.num_parts > 1) {
    expected.front() = std::clamp<int64_t>(num_rows, 1, case_.num_tokens());  // the routing decides
  } else if (cut && num_rows == num_stored) {
    expected.front() = num_stored;
  } else if (id.ends_with(".kv_b") && num_rows == case_.num_tokens()) {
    expected.front() = num_rows;  // of the new tokens only, where expanded keys and values are cached
  }
  if (tensor.shape != expected) {
    throw_input_error(
        "{}: expected {} for {}, got {}", origin, model::shape_text(expected), id, model::shape_text(tensor.shape));
  }
  return cut && num_rows != num_stored ? stored_rows(case_, id, tensor) : tensor;
}

// State beside the ops: what a dump of the naive form holds in place of the latent cache.
void CaseOps::add_expanded_cache(const model::ModelConfig& config, const model::Op& latent) {
  const std::string prefix = latent.id.substr(0, latent.id.rfind('.'));
  model::Op state = latent;
  state.shape = {latent.shape.front(), config.num_attention_heads, config.qk_head_dim()};
  ops_.emplace(prefix + ".keys", state);
  state.shape.back() = config.v_head_dim;
  ops_.emplace(prefix + ".values", state);
}

}  // namespace golden
