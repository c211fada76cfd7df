#include "tools/record_progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace tools {
namespace {

constexpr std::chrono::milliseconds kEvery{200};

// "layer.3.moe.expert.17.gate" -> "layer.3.moe.expert.*.gate"
std::string group_id(const model::Op& op) {
  if (op.expert < 0) {
    return op.id;
  }
  constexpr std::string_view kBefore = ".expert.";
  const std::string_view id = op.id;
  const size_t begin = id.find(kBefore) + kBefore.size();
  const size_t end = std::min(id.find('.', begin), id.size());
  return fmt::format("{}*{}", id.substr(0, begin), id.substr(end));
}

std::string time_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

double num_flops(const std::vector<model::Op>& ops) {
  double flops = 0;
  for (const auto& op : ops) {
    flops += static_cast<double>(op.flops);
  }
  return flops;
}

RecordProgress::RecordProgress(double total_flops, std::function<void(const std::string&)> show)
    : total_flops_(total_flops), show_(std::move(show)) {}

void RecordProgress::begin_step(const std::string& case_name, const std::vector<model::Op>& ops) {
  before_step_ += of_step_;
  case_name_ = case_name;
  until_.clear();
  of_step_ = 0;
  for (const auto& op : ops) {
    of_step_ += static_cast<double>(op.flops);
    until_[op.id] = of_step_;
  }
}

void RecordProgress::see(const model::Op& op) {
  const auto now = Clock::now();
  const auto until = until_.find(group_id(op));
  if (now - shown_ < kEvery || until == until_.end()) {
    return;
  }
  shown_ = now;
  const double done = before_step_ + until->second;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const double frac = total_flops_ > 0 ? done / total_flops_ : 0;
  show_(fmt::format("recording {}: {}, {:.0f} %, {} left",
                    case_name_,
                    op.id,
                    100 * frac,
                    frac > 0.005 ? time_text(seconds * (1 - frac) / frac) : "?"));
}

}  // namespace tools
