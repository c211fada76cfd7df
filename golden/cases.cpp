#include "golden/cases.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <set>

#include "golden/json_text.hpp"
#include "model/check.hpp"
#include "model/printable.hpp"

namespace golden {
namespace {

using model::throw_input_error;

std::string read_text(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (!stream.is_open() || stream.bad()) {
    throw_input_error("{}: cannot be read, expected a JSON file of cases", path.string());
  }
  return text;
}

std::vector<std::string> names_of(const std::vector<Case>& cases) {
  std::vector<std::string> names;
  for (const Case& known : cases) {
    names.push_back(known.name);
  }
  return names;
}

template <typename Cases>
auto* find_case(Cases& cases, std::string_view name) {
  const auto found = std::ranges::find(cases, name, &Case::name);
  return found == cases.end() ? nullptr : &*found;
}

const Case& require_case(const std::vector<Case>& cases, std::string_view name, const std::string& origin) {
  const Case* found = find_case(cases, name);
  if (found == nullptr) {
    throw_input_error(
        "{}: no case is called {}, known: {}", origin, model::printable(name), fmt::join(names_of(cases), ", "));
  }
  return *found;
}

// Turns the sections of one file into cases. `origin` is the file; every message begins with it and the key.
class CaseReader {
 public:
  CaseReader(const Json& root, std::string origin) : root_(root), origin_(std::move(origin)) {}

  std::vector<Case> read() {
    if (!root_.is_object()) {
      throw_input_error("{}: expected an object with prompts, batch2, decode, mtp, <case>_rows", origin_);
    }
    read_prompts();
    read_batches();
    read_decode();
    read_mtp();
    read_rows();
    if (cases_.empty()) {
      throw_input_error("{}: holds no case, expected prompts or batch2", origin_);
    }
    return std::move(cases_);
  }

 private:
  // The object under a key, or null when the file has no such key.
  const Json* section(const char* key) const {
    const auto found = root_.find(key);
    if (found == root_.end()) {
      return nullptr;
    }
    if (!found->is_object()) {
      throw_input_error("{}: {}: expected an object, got {}", origin_, key, found->type_name());
    }
    return &*found;
  }

  // A new case. The name opens every tensor name of the case, so it must not hold a slash; the rest keeps it printable.
  Case& add(const std::string& name, const std::string& where) {
    const bool plain = !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
      return c < 0x80 && (std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.');
    });
    if (!plain) {
      throw_input_error("{}: {}: expected a name of letters, digits, '.', '_' and '-'", where, model::printable(name));
    }
    if (find_case(cases_, name) != nullptr) {
      throw_input_error("{}: {}: another case has this name", where, model::printable(name));
    }
    return cases_.emplace_back(Case{.name = name});
  }

  void read_prompts() {
    if (const Json* prompts = section("prompts")) {
      const std::string where = origin_ + ": prompts";
      for (const auto& [name, ids] : prompts->items()) {
        Case& prompt = add(name, where);
        prompt.sequences = {read_token_ids(ids, where + ": " + name)};
      }
    }
  }

  void read_batches() {
    if (const Json* batches = section("batch2")) {
      const std::string where = origin_ + ": batch2";
      for (const auto& [name, rows] : batches->items()) {
        Case& batch = add(name, where);
        if (!rows.is_array() || rows.empty()) {
          throw_input_error("{}: {}: expected a list of one or more lists of token ids", where, name);
        }
        for (const Json& row : rows) {
          batch.sequences.push_back(read_token_ids(row, where + ": " + name));
        }
      }
    }
  }

  void read_decode() {
    const Json* decode = section("decode");
    if (decode == nullptr) {
      return;
    }
    const std::string where = origin_ + ": decode";
    if (!decode->contains("prefill") || !decode->at("prefill").is_string() || !decode->contains("feed")) {
      throw_input_error("{}: expected prefill (name of a prompt) and feed (list of token ids)", where);
    }
    std::string previous = decode->at("prefill").get<std::string>();
    if (require_case(cases_, previous, where + ": prefill").sequences.size() != 1) {
      throw_input_error("{}: prefill: \"{}\" is a batch, expected a case of one sequence", where, previous);
    }
    int64_t step_idx = 0;
    for (const int32_t id : read_token_ids(decode->at("feed"), where + ": feed")) {
      const std::string name = fmt::format("d{}", step_idx++);
      Case& step = add(name, where);
      step.after = previous;
      step.sequences = {{id}};
      previous = name;
    }
  }

  void read_mtp() {
    if (const Json* mtp = section("mtp")) {
      for (const auto& [name, ids] : mtp->items()) {
        const std::string where = origin_ + ": mtp";
        const Case& prompt = require_case(cases_, name, where);
        if (prompt.sequences.size() != 1 || !prompt.after.empty()) {
          throw_input_error("{}: \"{}\": expected a prompt of one sequence", where, name);
        }
        find_case(cases_, name)->mtp_ids = read_token_ids(ids, where + ": " + name);
      }
    }
  }

  // Also refuses keys that mean nothing: a misspelt section would otherwise go unnoticed.
  void read_rows() {
    static const std::set<std::string_view> sections{"prompts", "batch2", "decode", "mtp"};
    constexpr std::string_view kSuffix = "_rows";
    for (const auto& [key, value] : root_.items()) {
      if (sections.contains(key)) {
        continue;
      }
      const std::string where = fmt::format("{}: {}", origin_, model::printable(key));
      if (!key.ends_with(kSuffix)) {
        throw_input_error("{}: unknown key, expected prompts, batch2, decode, mtp or <case>_rows", where);
      }
      const std::string name = key.substr(0, key.size() - kSuffix.size());
      const int64_t num_tokens = require_case(cases_, name, where).num_tokens();
      auto rows = read_integers<int64_t>(value, num_tokens - 1, where);
      if (rows.empty() || std::ranges::adjacent_find(rows, std::greater_equal{}) != rows.end()) {
        throw_input_error("{}: expected ascending row numbers, at least one", where);
      }
      find_case(cases_, name)->rows = std::move(rows);
    }
  }

  const Json& root_;
  std::string origin_;
  std::vector<Case> cases_;
};

}  // namespace

int64_t Case::num_tokens() const {
  return std::accumulate(sequences.begin(), sequences.end(), int64_t{0}, [](int64_t sum, const auto& ids) {
    return sum + static_cast<int64_t>(ids.size());
  });
}

std::vector<Case> read_cases(const std::filesystem::path& path) {
  const Json root = parse_json(read_text(path), path.string());
  return CaseReader(root, path.string()).read();
}

Case prompt_case(std::vector<int32_t> ids) {
  if (ids.empty()) {
    throw_input_error("prompt: expected at least one token id, got none");
  }
  std::string name = fmt::format("p{}", ids.size());
  return {.name = std::move(name), .sequences = {std::move(ids)}};
}

std::vector<Case> select_cases(const std::vector<Case>& all, const std::vector<std::string>& names) {
  std::set<std::string> wanted;
  for (const std::string& name : names) {
    for (const Case* next = &require_case(all, name, "case");
         wanted.insert(next->name).second && !next->after.empty();) {
      next = &require_case(all, next->after, fmt::format("case {}: after", next->name));
    }
  }
  std::vector<Case> selected;
  std::ranges::copy_if(all, std::back_inserter(selected), [&](const Case& c) { return wanted.contains(c.name); });
  return selected;
}

std::vector<model::SequenceStep> sequence_steps(const std::vector<Case>& all, const Case& which) {
  std::vector<model::SequenceStep> steps;
  for (const auto& ids : which.sequences) {
    steps.push_back({.num_cached = 0, .num_new = static_cast<int64_t>(ids.size())});
  }
  // A chain cannot be longer than the list of cases; a longer one goes in circles.
  size_t chain_len = 0;
  for (const Case* next = &which; !next->after.empty();) {
    const std::string where = fmt::format("case {}: after", next->name);
    next = &require_case(all, next->after, where);
    if (next->sequences.size() != steps.size() || ++chain_len > all.size()) {
      throw_input_error("{}: \"{}\": expected an earlier case of {} sequences", where, next->name, steps.size());
    }
    for (size_t i = 0; i < steps.size(); ++i) {
      steps[i].num_cached += static_cast<int64_t>(next->sequences[i].size());
    }
  }
  return steps;
}

model::TensorView stored_rows(const Case& which, std::string_view op, const model::TensorView& tensor) {
  if (which.rows.empty() || (op != "final_norm" && op != "logits")) {
    return tensor;
  }
  CHECK_EQ(tensor.num_rows(), which.num_tokens());
  const auto row_bytes = static_cast<size_t>(tensor.row_len() * model::dtype_bytes(tensor.dtype));
  auto bytes = std::make_shared<std::vector<std::byte>>(which.rows.size() * row_bytes);
  for (size_t i = 0; i < which.rows.size(); ++i) {
    const int64_t row = which.rows[i];
    CHECK(0 <= row && row < tensor.num_rows());
    std::memcpy(bytes->data() + i * row_bytes, tensor.bytes.data() + static_cast<size_t>(row) * row_bytes, row_bytes);
  }
  model::TensorView result = tensor;
  result.shape.front() = static_cast<int64_t>(which.rows.size());
  result.bytes = *bytes;
  result.owner = bytes;
  return result;
}

}  // namespace golden
