#include "tools/infer/routing_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>

namespace tools {

RoutingTrace::RoutingTrace(const std::string& config_hash, std::vector<int64_t> prompt_lens)
    : header_(fmt::format("# config_hash={}\nrequest,position,phase,layer,slot,expert,weight\n", config_hash)),
      prompt_lens_(std::move(prompt_lens)) {}

void RoutingTrace::enter_step(std::vector<reference::RowOrigin> rows) {
  rows_ = std::move(rows);
  ++num_steps_;
}

void RoutingTrace::see(const model::Op& op, const model::TensorView& value) {
  if (op.kind == model::OpKind::kRouterExperts) {
    topk_ids_ = value;
  }
  if (op.kind != model::OpKind::kRouterWeights) {
    return;
  }
  const auto ids = topk_ids_.codes<int32_t>();
  const auto weights = model::to_double(value);
  const auto k = static_cast<size_t>(value.row_len());
  CHECK_EQ(rows_.size() * k, ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto& [request, position] = rows_[i / k];
    choices_.push_back({.step = num_steps_ - 1,
                        .layer = op.layer,
                        .request = request,
                        .position = position,
                        .slot = static_cast<int32_t>(i % k),
                        .expert = ids[i],
                        .weight = weights[i]});
  }
}

void RoutingTrace::merge(const std::vector<RoutedChoice>& others) {
  choices_.insert(choices_.end(), others.begin(), others.end());
  std::ranges::stable_sort(choices_, {}, [this](const RoutedChoice& choice) {
    return std::tuple(choice.step, choice.layer, is_prefill(choice), choice.request);
  });
}

bool RoutingTrace::is_prefill(const RoutedChoice& choice) const {
  return choice.position < prompt_lens_.at(static_cast<size_t>(choice.request));
}

std::string RoutingTrace::text() const {
  std::string text = header_;
  for (const RoutedChoice& choice : choices_) {
    fmt::format_to(std::back_inserter(text),
                   "{},{},{},{},{},{},{:.9g}\n",
                   choice.request,
                   choice.position,
                   is_prefill(choice) ? "prefill" : "decode",
                   choice.layer,
                   choice.slot,
                   choice.expert,
                   choice.weight);
  }
  return text;
}

}  // namespace tools
