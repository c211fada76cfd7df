#include "golden/formats.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "golden/formats/layout.hpp"
#include "golden/formats/name_table.hpp"
#include "model/check.hpp"
#include "model/op_list.hpp"
#include "model/safetensors.hpp"

namespace golden {
namespace {

using model::Shape;
using model::TensorView;
using model::throw_input_error;

using Numbers = std::vector<std::string>;

// "layers.3.ffn.experts.12.w1" is pattern "layers.#.ffn.experts.#.w1" with numbers 3, 12.
struct SplitName {
  std::string pattern;
  Numbers numbers;
};

SplitName split_numbers(std::string_view name) {
  SplitName result;
  while (true) {
    const std::string_view part = name.substr(0, name.find('.'));
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    if (number) {
      result.numbers.emplace_back(part);
    }
    result.pattern += number ? std::string_view("#") : part;
    if (part.size() == name.size()) {
      return result;
    }
    result.pattern += '.';
    name.remove_prefix(part.size() + 1);
  }
}

std::string fill_numbers(std::string_view pattern, const Numbers& numbers) {
  std::string name;
  size_t next = 0;
  for (const char c : pattern) {
    name += c == '#' ? numbers.at(next++) : std::string(1, c);
  }
  return name;
}

// What the op list says about the ops of one case, in either attention form.
class CaseOps {
 public:
  CaseOps(const model::ModelConfig& config, const std::vector<Case>& all, const Case& which) : case_(which) {
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

  // Null when the model has no such op.
  [[nodiscard]] const model::Op* find(const std::string& id) const {
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

  // The tensor as we store it. Throws InputError that begins with `origin` when the shape is not the op's.
  [[nodiscard]] TensorView checked(const std::string& id,
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

 private:
  // State beside the ops: what a dump of the naive form holds in place of the latent cache.
  void add_expanded_cache(const model::ModelConfig& config, const model::Op& latent) {
    const std::string prefix = latent.id.substr(0, latent.id.rfind('.'));
    model::Op state = latent;
    state.shape = {latent.shape.front(), config.num_attention_heads, config.qk_head_dim()};
    ops_.emplace(prefix + ".keys", state);
    state.shape.back() = config.v_head_dim;
    ops_.emplace(prefix + ".values", state);
  }

  const Case& case_;
  std::map<std::string, model::Op> ops_;
};

// The tensors of one case: pattern -> numbers -> (name in the file, tensor).
using CaseTensors = std::map<std::string, std::map<Numbers, std::pair<std::string, TensorView>>>;

// Applies a table to the tensors of one case after another.
class Converter {
 public:
  Converter(const std::vector<NameRow>& table, std::string path) : table_(table), path_(std::move(path)) {}

  void convert(const Case& which, const CaseOps& ops, const CaseTensors& tensors) {
    for (const NameRow& row : table_) {
      const auto found = tensors.find(row.foreign);
      if (found == tensors.end()) {
        continue;
      }
      for (const auto& [numbers, first] : found->second) {
        const std::string id = fill_numbers(row.ours, numbers);
        const std::string name = which.name + "/" + id;
        const model::Op* op = ops.find(id);
        if (op == nullptr || converted_.contains(name)) {
          continue;
        }
        std::pair<std::string, TensorView> second;
        if (!row.second.empty()) {
          const auto others = tensors.find(row.second);
          if (others == tensors.end() || !others->second.contains(numbers)) {
            continue;
          }
          second = others->second.at(numbers);
          used_.insert(second.first);
        }
        const std::string origin = fmt::format("{}: tensor {}", path_, first.first);
        const TensorView ours = apply_layout(row.layout, first.second, second.second, origin);
        converted_.emplace(name, ops.checked(id, *op, ours, origin));
        used_.insert(first.first);
      }
    }
  }

  [[nodiscard]] const std::map<std::string, TensorView>& converted() const { return converted_; }
  [[nodiscard]] const std::set<std::string>& used() const { return used_; }  // names of the file

 private:
  const std::vector<NameRow>& table_;
  std::string path_;
  std::map<std::string, TensorView> converted_;
  std::set<std::string> used_;
};

// Our own names: taken as they are, except that full final_norm and logits are cut to the rows that dumps of the case hold.
TensorView own_tensor(const Case& which, std::string_view op, const TensorView& tensor) {
  const bool full = !tensor.shape.empty() && tensor.num_rows() == which.num_tokens();
  return full ? stored_rows(which, op, tensor) : tensor;
}

// The case and the op of "<case>/<op>". Null and nothing when no case has that name.
std::pair<const Case*, std::string> split_case(const std::vector<Case>& cases, const std::string& name) {
  const size_t slash = name.find('/');
  const auto which = std::ranges::find(cases, name.substr(0, slash), &Case::name);
  if (slash == std::string::npos || which == cases.end()) {
    return {nullptr, ""};
  }
  return {&*which, name.substr(slash + 1)};
}

Dump read_own(const std::map<std::string, TensorView>& tensors, const std::vector<Case>& cases) {
  Dump dump;
  for (const auto& [name, tensor] : tensors) {
    const auto [which, op] = split_case(cases, name);
    if (which == nullptr) {
      dump.unused.push_back(name);
    } else {
      dump.tensors.emplace(name, own_tensor(*which, op, tensor));
    }
  }
  return dump;
}

Dump read_foreign(const model::SafetensorsFile& file,
                  const std::vector<NameRow>& table,
                  const model::ModelConfig& config,
                  const std::vector<Case>& cases) {
  std::map<std::string, CaseTensors> by_case;
  for (const auto& [name, tensor] : file.tensors) {
    const auto [which, op] = split_case(cases, name);
    if (which != nullptr && op.find('#') == std::string::npos) {
      SplitName split = split_numbers(op);
      by_case[which->name][split.pattern].emplace(std::move(split.numbers), std::pair(name, tensor));
    }
  }
  Converter converter(table, file.path.string());
  for (const Case& which : cases) {
    if (const auto tensors = by_case.find(which.name); tensors != by_case.end()) {
      converter.convert(which, CaseOps(config, cases, which), tensors->second);
    }
  }
  Dump dump{.tensors = converter.converted(), .unused = {}};
  for (const auto& [name, tensor] : file.tensors) {
    if (!converter.used().contains(name)) {
      dump.unused.push_back(name);
    }
  }
  return dump;
}

}  // namespace

std::vector<std::string> known_formats() {
  return {"dsv3", "v32", "hf"};
}

Dump read_dump(const std::filesystem::path& path,
               std::string_view format,
               const model::ModelConfig& config,
               const std::vector<Case>& cases) {
  const auto formats = known_formats();
  if (std::ranges::find(formats, format) == formats.end()) {
    throw_input_error("format \"{}\" is not known, expected one of {}", format, fmt::join(formats, ", "));
  }
  const model::SafetensorsFile file = model::read_safetensors(path);
  if (format == "dsv3") {
    return read_own(file.tensors, cases);
  }
  return read_foreign(file, format == "hf" ? hf_names() : v32_names(), config, cases);
}

}  // namespace golden
