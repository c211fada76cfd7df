#include "golden/recorder.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <utility>

#include "model/check.hpp"

namespace golden {

Recorder::Recorder(Case recorded, std::vector<std::string> globs, std::vector<int64_t> layers)
    : case_(std::move(recorded)), globs_(std::move(globs)), layers_(std::move(layers)) {}

bool Recorder::wants(const model::Op& op) const {
  if (op.layer >= 0 && !layers_.empty() && std::ranges::find(layers_, op.layer) == layers_.end()) {
    return false;
  }
  if (globs_.empty()) {
    return !op.optional;
  }
  return std::ranges::any_of(globs_,
                             [&](const std::string& glob) { return fnmatch(glob.c_str(), op.id.c_str(), 0) == 0; });
}

void Recorder::see(const model::Op& op, const model::TensorView& value) {
  if (!wants(op)) {
    return;
  }
  CHECK(value.owner != nullptr || value.bytes.empty());
  const bool is_new = tensors_.emplace(case_.name + "/" + op.id, stored_rows(case_, op.id, value)).second;
  CHECK(is_new);
}

}  // namespace golden
