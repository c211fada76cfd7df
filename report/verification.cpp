#include "report/verification.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "model/check.hpp"
#include "model/json_fields.hpp"
#include "simulator/json_file.hpp"

namespace report {
namespace {

constexpr std::array<std::string_view, 7> kStatuses{
    "same", "order", "variant", "flip", "diverged", "undecided", "missing"};

std::string_view base_status(const std::string& status) {
  return std::string_view(status).substr(0, status.find(':'));
}

// A number, or a text for what JSON has no number for.
std::optional<double> number_of(const nlohmann::json& op, const char* key) {
  const auto found = op.find(key);
  return found != op.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

std::string first_divergence(const nlohmann::json& root, const std::string& origin) {
  model::JsonFields fields(root, origin, "");
  auto first = fields.object("first_divergence");
  if (!first) {
    return "";
  }
  std::string text = fmt::format("{} in case {}", first->text_or("op", "?"), first->text_or("case", "?"));
  if (first->has("token")) {
    text += fmt::format(", token {}", first->integer("token", -1));
  }
  const std::string reason = first->text_or("reason", "");
  return reason.empty() ? text : text + ": " + reason;
}

// The largest layer number in "layer.N." ids; -1 without any.
template <typename Ops>
int64_t last_layer(const Ops& ops) {
  int64_t last = -1;
  for (const auto& op : ops) {
    const std::string_view id = op.op;
    if (id.starts_with("layer.")) {
      last = std::max<int64_t>(last, std::atoll(std::string(id.substr(6, 8)).c_str()));
    }
  }
  return last;
}

}  // namespace

int VerifiedOp::severity() const {
  // Diverged is the worst; what is missing or undecided comes before what is fine.
  constexpr std::array kOrder{0, 1, 2, 3, 6, 4, 5};
  const auto found = std::ranges::find(kStatuses, base_status(status));
  return kOrder.at(static_cast<size_t>(found - kStatuses.begin()));
}

std::map<std::string, int64_t> Verification::counts() const {
  std::map<std::string, int64_t> counts;
  for (const VerifiedOp& op : ops) {
    ++counts[std::string(base_status(op.status))];
  }
  return counts;
}

std::map<std::string, const VerifiedOp*> Verification::worst() const {
  std::map<std::string, const VerifiedOp*> worst;
  for (const VerifiedOp& op : ops) {
    const VerifiedOp*& place = worst[grouped_id(op.op)];
    const auto rank = [](const VerifiedOp& item) { return std::pair(item.severity(), item.bound_use.value_or(0)); };
    if (place == nullptr || rank(op) > rank(*place)) {
      place = &op;
    }
  }
  return worst;
}

Verification read_verification(const std::filesystem::path& path) {
  const std::string origin = path.string();
  const nlohmann::json root = simulator::read_json_file(path);
  if (!root.is_object() || !root.contains("verdict") || !root.contains("ops") || !root["ops"].is_array()) {
    model::throw_input_error("{}: no verdict in it, expected what dsv3-verify --json prints", origin);
  }
  model::JsonFields fields(root, origin, "");
  Verification verification{.file = origin,
                            .verdict = fields.text_or("verdict", ""),
                            .profile = fields.text_or("profile", ""),
                            .config_hash = fields.text_or("config_hash", ""),
                            .first_divergence = first_divergence(root, origin)};
  constexpr std::array<std::string_view, 3> kVerdicts{"pass", "fail", "undecided"};
  if (std::ranges::find(kVerdicts, verification.verdict) == kVerdicts.end()) {
    fields.refuse("verdict", "expected pass, fail or undecided");
  }
  for (size_t i = 0; i < root["ops"].size(); ++i) {
    const nlohmann::json& item = root["ops"][i];
    if (!item.is_object()) {
      model::throw_input_error("{}: ops[{}]: expected an object", origin, i);
    }
    model::JsonFields op(item, origin, fmt::format("ops[{}].", i));
    VerifiedOp verified{.case_name = op.text_or("case", ""),
                        .op = op.text_or("op", ""),
                        .status = op.text_or("status", ""),
                        .bound_use = number_of(item, "max_bound_use"),
                        .ulp = number_of(item, "max_ulp"),
                        .cosine = number_of(item, "cosine"),
                        .reason = op.text_or("reason", "")};
    if (std::ranges::find(kStatuses, base_status(verified.status)) == kStatuses.end()) {
      op.refuse("status", "expected same, order, variant:NAME, flip, diverged, undecided or missing");
    }
    verification.ops.push_back(std::move(verified));
  }
  if (root.contains("notes") && root["notes"].is_array()) {
    for (const nlohmann::json& note : root["notes"]) {
      verification.notes.push_back(note.is_string() ? note.get<std::string>() : note.dump());
    }
  }
  return verification;
}

bool is_same_model(const Verification& verification, const Scenario& scenario) {
  if (!verification.config_hash.empty() && !scenario.config_hash.empty()) {
    return verification.config_hash == scenario.config_hash;
  }
  return last_layer(verification.ops) == last_layer(scenario.rows);
}

}  // namespace report
