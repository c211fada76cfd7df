#include "model/strict_json.hpp"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "model/check.hpp"
#include "model/printable.hpp"

namespace model {
namespace {

using nlohmann::json;

// A header with the 140,000 tensors of Kimi-K2 has 1.1 million.
constexpr int64_t kMaxValues = 1'500'000;

// A dry run over the events. The library's own ways would not do: its document parser keeps the last of two equal names, and
// its callback parser walks over all siblings at the end of every object.
class Guard : public nlohmann::json_sax<json> {
 public:
  Guard(const std::string& origin, size_t max_depth) : origin_(origin), max_depth_(max_depth) {}

  bool null() override { return count(); }
  bool boolean(bool) override { return count(); }
  bool number_integer(number_integer_t) override { return count(); }
  bool number_unsigned(number_unsigned_t) override { return count(); }
  bool number_float(number_float_t, const string_t&) override { return count(); }
  bool string(string_t&) override { return count(); }
  bool binary(binary_t&) override { return count(); }
  bool start_object(size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override { return leave(); }

  bool key(string_t& name) override {
    if (!names_.back().insert(name).second) {
      throw_input_error("{}: the name {} appears twice in one object", origin_, printable(name));
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw_input_error("{}: not valid JSON at byte {}", origin_, position);
  }

 private:
  bool count() {
    if (++num_values_ > kMaxValues) {
      throw_input_error("{}: more than {} JSON values", origin_, kMaxValues);
    }
    return true;
  }

  bool enter() {
    if (names_.size() == max_depth_) {
      throw_input_error("{}: JSON nested deeper than {} levels", origin_, max_depth_);
    }
    names_.emplace_back();
    return count();
  }

  bool leave() {
    names_.pop_back();
    return true;
  }

  const std::string& origin_;
  size_t max_depth_;
  int64_t num_values_ = 0;
  std::vector<std::set<std::string>> names_;  // of the containers that are open; empty for arrays
};

}  // namespace

json parse_strict_json(std::string_view text, const std::string& origin, size_t max_depth) {
  Guard guard(origin, max_depth);
  json::sax_parse(text.begin(), text.end(), &guard);
  return json::parse(text.begin(), text.end());
}

}  // namespace model
