#include "simulator/routing_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>

#include "model/check.hpp"
#include "model/printable.hpp"
#include "simulator/csv_table.hpp"
#include "simulator/id_bytes.hpp"
#include "simulator/json_file.hpp"

namespace simulator {
namespace {

constexpr int64_t kMostExperts = 1 << 16;

struct TraceColumns {
  std::optional<size_t> layer;
  std::optional<size_t> token;
  std::optional<size_t> rank;
  std::optional<size_t> group;  // case or request: separates tokens of the same number
  std::optional<size_t>
      slot;  // place among a token's choices: 0 opens a token, also one that was there before (a rejected draft)
  std::vector<size_t> experts;
};

bool starts_numbered(std::string_view column, std::string_view prefix) {
  return column.size() > prefix.size() && column.starts_with(prefix) &&
         std::ranges::all_of(column.substr(prefix.size()), [](char c) { return c >= '0' && c <= '9'; });
}

TraceColumns find_columns(const CsvTable& csv) {
  TraceColumns found;
  for (size_t i = 0; i < csv.columns.size(); ++i) {
    const std::string& column = csv.columns[i];
    if (column == "layer" || column == "layer_id") {
      found.layer = i;
    } else if (column == "token" || column == "token_idx" || column == "position") {
      found.token = i;
    } else if (column == "rank") {
      found.rank = i;
    } else if (column == "case" || column == "request" || column == "step") {
      found.group = i;
    } else if (column == "slot") {
      found.slot = i;
    } else if (column == "expert" || column == "experts" || column == "expert_ids" || column == "ids" ||
               column == "topk_ids" || starts_numbered(column, "expert_") || starts_numbered(column, "id_")) {
      found.experts.push_back(i);
    }
  }
  if (!found.layer || !found.token || found.experts.empty()) {
    model::throw_input_error(
        "{}: expected a routing trace with the columns layer, token or position, and expert (or "
        "expert_0, expert_1, ..., or experts)",
        csv.path);
  }
  return found;
}

int64_t whole_number(const std::string& text, const CsvTable& csv, int64_t line, const std::string& column) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    model::throw_input_error(
        "{}:{}: {} {}: expected a whole number, 0 or more", csv.path, line, column, model::printable(text));
  }
  return value;
}

void check_expert(int64_t expert, const std::string& where) {
  if (expert < 0 || expert >= kMostExperts) {
    model::throw_input_error("{}: expert {}: expected 0 to {}", where, expert, kMostExperts - 1);
  }
}

RoutingTrace from_csv(const std::filesystem::path& path) {
  const CsvTable csv = read_csv(path);
  const TraceColumns columns = find_columns(csv);
  using TokenKey = std::tuple<int64_t, std::string, int64_t>;  // rank, case, token
  std::map<int64_t, std::map<TokenKey, size_t>> index;
  std::map<int64_t, std::vector<RoutedToken>> tokens;
  RoutingTrace trace;
  for (const CsvRow& row : csv.rows) {
    const auto number = [&](size_t column) {
      return whole_number(row.cells[column], csv, row.line, csv.columns[column]);
    };
    const int64_t layer = number(*columns.layer);
    const int64_t rank = columns.rank ? number(*columns.rank) : -1;
    const TokenKey key{rank, columns.group ? row.cells[*columns.group] : "", number(*columns.token)};
    std::vector<RoutedToken>& of_layer = tokens[layer];
    const auto [entry, is_new] = index[layer].try_emplace(key, of_layer.size());
    if (is_new || (columns.slot && number(*columns.slot) == 0)) {
      entry->second = of_layer.size();
      of_layer.push_back({.rank = rank, .experts = {}});
    }
    for (const size_t column : columns.experts) {
      std::string list = row.cells[column];
      std::ranges::replace_if(
          list, [](char c) { return c == ';' || c == '[' || c == ']' || c == ','; }, ' ');
      for (size_t begin = list.find_first_not_of(' '); begin != std::string::npos;) {
        const size_t end = std::min(list.find(' ', begin), list.size());
        const int64_t expert = whole_number(list.substr(begin, end - begin), csv, row.line, csv.columns[column]);
        check_expert(expert, fmt::format("{}:{}", csv.path, row.line));
        of_layer[entry->second].experts.push_back(expert);
        trace.largest_expert = std::max(trace.largest_expert, expert);
        begin = list.find_first_not_of(' ', end);
      }
    }
  }
  for (auto& [layer, of_layer] : tokens) {
    trace.layers.push_back({.layer_id = layer, .tokens = std::move(of_layer)});
  }
  return trace;
}

// Appends [tokens][layers][k].
void append_json(RoutingTrace& trace, const nlohmann::json& tokens, const std::string& where) {
  const auto fail = [&] { model::throw_input_error("{}: expected expert ids as [tokens][layers][k]", where); };
  if (!tokens.is_array()) {
    fail();
  }
  for (const nlohmann::json& token : tokens) {
    if (!token.is_array() || token.empty()) {
      fail();
    }
    if (trace.layers.empty()) {
      trace.layers.resize(token.size());
    }
    if (token.size() != trace.layers.size()) {
      fail();
    }
    for (size_t layer = 0; layer < token.size(); ++layer) {
      trace.layers[layer].layer_id = static_cast<int64_t>(layer);
      RoutedToken routed;
      if (!token[layer].is_array()) {
        fail();
      }
      for (const nlohmann::json& expert : token[layer]) {
        if (!expert.is_number_integer()) {
          fail();
        }
        routed.experts.push_back(expert.get<int64_t>());
        check_expert(routed.experts.back(), where);
        trace.largest_expert = std::max(trace.largest_expert, routed.experts.back());
      }
      trace.layers[layer].tokens.push_back(std::move(routed));
    }
  }
}

// Appends ids that lie one after another, [tokens][layers][k].
void append_ids(
    RoutingTrace& trace, const std::vector<int64_t>& ids, size_t num_layers, size_t k, const std::string& where) {
  const size_t per_token = num_layers * k;
  if (per_token == 0 || ids.size() % per_token != 0) {
    model::throw_input_error("{}: {} expert ids, expected rows of {} layers x {}", where, ids.size(), num_layers, k);
  }
  if (trace.layers.empty()) {
    trace.layers.resize(num_layers);
  }
  if (trace.layers.size() != num_layers) {
    model::throw_input_error("{}: {} layers after {} of another response", where, num_layers, trace.layers.size());
  }
  for (size_t begin = 0; begin < ids.size(); begin += k) {
    const size_t layer = begin / k % num_layers;
    RoutedToken routed;
    for (size_t i = begin; i < begin + k; ++i) {
      check_expert(ids[i], where);
      trace.largest_expert = std::max(trace.largest_expert, ids[i]);
      routed.experts.push_back(ids[i]);
    }
    trace.layers[layer].layer_id = static_cast<int64_t>(layer);
    trace.layers[layer].tokens.push_back(std::move(routed));
  }
}

int64_t field_or(const nlohmann::json& object, const char* key, int64_t otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

// vLLM's way: a .npy file, or lists.
void append_vllm(RoutingTrace& trace, const nlohmann::json& value, const std::string& where) {
  if (!value.is_string()) {
    append_json(trace, value, where);
    return;
  }
  const IdArray array = parse_npy(decode_base64(value.get<std::string>(), where), where);
  if (array.shape.size() != 3) {
    model::throw_input_error("{}: {} dimensions, expected [tokens][layers][k]", where, array.shape.size());
  }
  append_ids(trace, array.ids, array.shape[1], array.shape[2], where);
}

// SGLang's way: ids alone. Their shape follows from the token counts beside them.
void append_sglang(RoutingTrace& trace,
                   const nlohmann::json& meta,
                   int64_t experts_per_token,
                   const std::string& where) {
  const nlohmann::json& value = meta["routed_experts"];
  if (!value.is_string()) {
    append_json(trace, value, where);
    return;
  }
  const auto named = meta.find("routed_experts_dtype");
  const std::string dtype = named != meta.end() && named->is_string() ? named->get<std::string>() : "int32";
  const std::vector<int64_t> ids = read_ids(decode_base64(value.get<std::string>(), where), dtype, where);
  const int64_t num_tokens = field_or(meta, "prompt_tokens", 0) + field_or(meta, "completion_tokens", 0) - 1;
  const auto k = static_cast<size_t>(experts_per_token);
  if (num_tokens < 1 || ids.size() % (static_cast<size_t>(num_tokens) * k) != 0) {
    model::throw_input_error(
        "{}: {} expert ids are no whole number of layers for {} tokens (prompt_tokens + completion_tokens - 1) "
        "with {} experts each",
        where,
        ids.size(),
        num_tokens,
        experts_per_token);
  }
  append_ids(trace, ids, ids.size() / (static_cast<size_t>(num_tokens) * k), k, where);
}

void append_response(RoutingTrace& trace,
                     const nlohmann::json& response,
                     int64_t experts_per_token,
                     const std::string& where) {
  const auto has = [](const nlohmann::json& object, const char* key) {
    return object.is_object() && object.contains(key) && !object[key].is_null();
  };
  const auto append_field = [&](const nlohmann::json& object, const char* key) {
    if (has(object, key)) {
      append_vllm(trace, object[key], fmt::format("{}: {}", where, key));
    }
  };
  append_field(response, "prompt_routed_experts");
  append_field(response, "routed_experts");
  if (has(response, "meta_info") && has(response["meta_info"], "routed_experts")) {
    append_sglang(trace, response["meta_info"], experts_per_token, where + ": meta_info.routed_experts");
  }
  if (has(response, "choices") && response["choices"].is_array()) {
    for (const nlohmann::json& choice : response["choices"]) {
      append_field(choice, "routed_experts");
    }
  }
}

bool is_dense(const TraceLayer& layer) {
  return std::ranges::all_of(layer.tokens, [](const RoutedToken& token) {
    return std::ranges::all_of(token.experts, [](int64_t expert) { return expert == 0; });
  });
}

RoutingTrace from_json(const std::filesystem::path& path, int64_t experts_per_token) {
  const nlohmann::json document = read_json_file(path);
  RoutingTrace trace;
  if (document.is_array() && !document.empty() && document.front().is_object()) {
    for (const nlohmann::json& response : document) {
      append_response(trace, response, experts_per_token, path.string());
    }
  } else if (document.is_array()) {
    append_json(trace, document, path.string());
  } else {
    append_response(trace, document, experts_per_token, path.string());
  }
  std::erase_if(trace.layers, is_dense);
  return trace;
}

}  // namespace

RoutingTrace read_trace(const std::filesystem::path& path, int64_t experts_per_token) {
  RoutingTrace trace = path.extension() == ".json" ? from_json(path, experts_per_token) : from_csv(path);
  if (trace.layers.empty() || trace.layers.front().tokens.empty()) {
    model::throw_input_error("{}: a routing trace without tokens", path.string());
  }
  return trace;
}

std::vector<std::vector<double>> trace_loads(const RoutingTrace& trace, int64_t num_experts) {
  const int64_t width = num_experts > 0 ? num_experts : trace.largest_expert + 1;
  if (trace.largest_expert >= width) {
    model::throw_input_error("routing trace: expert {}, but the model has {} in a layer", trace.largest_expert, width);
  }
  std::vector<std::vector<double>> loads;
  for (const TraceLayer& layer : trace.layers) {
    loads.emplace_back(static_cast<size_t>(width), 0.0);
    for (const RoutedToken& token : layer.tokens) {
      for (const int64_t expert : token.experts) {
        loads.back()[static_cast<size_t>(expert)] += 1;
      }
    }
  }
  return loads;
}

}  // namespace simulator
