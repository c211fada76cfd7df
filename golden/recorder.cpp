#include "golden/recorder.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <utility>

#include "model/check.hpp"

namespace golden {
namespace {

bool matches(const std::string& glob, const std::string& id) {
  return fnmatch(glob.c_str(), id.c_str(), 0) == 0;
}

// The elements at sample_places().
model::TensorView sample(const model::TensorView& tensor) {
  const auto places = sample_places(tensor.size());
  const auto width = static_cast<size_t>(model::dtype_bytes(tensor.dtype));
  auto bytes = std::make_shared<std::vector<std::byte>>();
  for (const int64_t place : places) {
    const auto element = tensor.bytes.subspan(static_cast<size_t>(place) * width, width);
    bytes->insert(bytes->end(), element.begin(), element.end());
  }
  return {tensor.dtype, {static_cast<int64_t>(places.size())}, *bytes, bytes};
}

}  // namespace

std::vector<StoreRule> parse_store(const std::string& text, const std::string& origin) {
  std::vector<StoreRule> rules;
  std::stringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) {
    const size_t colon = item.find(':');
    const std::string form = item.substr(0, colon);
    const std::string glob = colon == std::string::npos ? "*" : item.substr(colon + 1);
    if (glob.empty() || (form != "values" && form != "hash" && form != "sample")) {
      model::throw_input_error("{} '{}': expected values, hash or sample, and ':' with a glob behind it", origin, item);
    }
    rules.push_back({glob,
                     form == "hash"     ? StoreForm::kHash
                     : form == "sample" ? StoreForm::kSample
                                        : StoreForm::kValues});
  }
  return rules;
}

Recorder::Recorder(Case recorded,
                   std::vector<std::string> globs,
                   std::vector<int64_t> layers,
                   std::vector<StoreRule> store)
    : case_(std::move(recorded)), globs_(std::move(globs)), layers_(std::move(layers)), store_(std::move(store)) {}

bool Recorder::wants(const model::Op& op) const {
  if (op.layer >= 0 && !layers_.empty() && std::ranges::find(layers_, op.layer) == layers_.end()) {
    return false;
  }
  if (globs_.empty()) {
    return !op.optional;
  }
  return std::ranges::any_of(globs_, [&](const std::string& glob) { return matches(glob, op.id); });
}

void Recorder::see(const model::Op& op, const model::TensorView& value) {
  if (!wants(op)) {
    return;
  }
  CHECK(value.owner != nullptr || value.bytes.empty());
  const std::string name = case_.name + "/" + op.id;
  CHECK(!tensors_.contains(name) && !reduced_.contains(name));
  const auto stored = stored_rows(case_, op.id, value);
  const auto rule = std::ranges::find_if(store_, [&](const StoreRule& r) { return matches(r.glob, op.id); });
  if (rule == store_.end() || rule->form == StoreForm::kValues) {
    tensors_.emplace(name, stored);
    return;
  }
  reduced_[name] = {std::string(model::dtype_name(stored.dtype)), stored.shape, content_hash(stored)};
  if (rule->form == StoreForm::kSample) {
    tensors_.emplace(name + kSampleSuffix, sample(stored));
  }
}

}  // namespace golden
