#include "tools/infer/routing_trace.hpp"

#include <fmt/format.h>

#include <iterator>

namespace tools {

RoutingTrace::RoutingTrace(const std::string& config_hash, std::vector<int64_t> prompt_lens)
    : text_(fmt::format("# config_hash={}\nrequest,position,phase,layer,slot,expert,weight\n", config_hash)),
      prompt_lens_(std::move(prompt_lens)) {}

void RoutingTrace::enter_step(std::vector<reference::RowOrigin> rows) {
  rows_ = std::move(rows);
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
    fmt::format_to(std::back_inserter(text_),
                   "{},{},{},{},{},{},{:.9g}\n",
                   request,
                   position,
                   position < prompt_lens_.at(static_cast<size_t>(request)) ? "prefill" : "decode",
                   op.layer,
                   i % k,
                   ids[i],
                   weights[i]);
  }
}

}  // namespace tools
