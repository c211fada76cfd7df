#include "golden/verdict.hpp"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

namespace golden {
namespace {

using nlohmann::ordered_json;

std::string_view outcome_name(Verdict::Outcome outcome) {
  switch (outcome) {
    case Verdict::Outcome::kPass: return "pass";
    case Verdict::Outcome::kFail: return "fail";
    case Verdict::Outcome::kUndecided: return "undecided";
  }
  return "undecided";
}

// JSON has no NaN or infinity: they are written as strings.
ordered_json number(double value) {
  if (std::isfinite(value)) {
    return value;
  }
  return std::isnan(value) ? "nan" : (value > 0 ? "inf" : "-inf");
}

ordered_json to_json(const Divergence& d) {
  return {{"op", d.op},
          {"case", d.case_name},
          {"rank", d.rank},
          {"token", d.token},
          {"coordinate", d.coordinate},
          {"got", number(d.got)},
          {"expected", number(d.expected)},
          {"bound", number(d.bound)},
          {"reads", d.reads},
          {"reason", d.reason}};
}

std::string xml_text(const std::string& text) {
  static const std::map<char, std::string> kEscapes{{'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'"', "&quot;"}};
  std::string escaped;
  for (const char c : text) {
    const auto found = kEscapes.find(c);
    escaped += found == kEscapes.end() ? std::string(1, c) : found->second;
  }
  return escaped;
}

}  // namespace

std::string_view status_name(OpStatus status) {
  switch (status) {
    case OpStatus::kSame: return "same";
    case OpStatus::kOrder: return "order";
    case OpStatus::kVariant: return "variant";
    case OpStatus::kFlip: return "flip";
    case OpStatus::kDiverged: return "diverged";
    case OpStatus::kUndecided: return "undecided";
    case OpStatus::kMissing: return "missing";
  }
  return "undecided";
}

const OpResult* Verdict::first_divergence() const {
  for (const OpResult& op : ops) {
    if (op.status == OpStatus::kDiverged) {
      return &op;
    }
  }
  return nullptr;
}

Verdict::Outcome decide(const std::vector<OpResult>& ops, bool strict) {
  bool undecided = true;  // until something other than logits is judged
  bool missing = false;
  for (const OpResult& op : ops) {
    switch (op.status) {
      case OpStatus::kDiverged: return Verdict::Outcome::kFail;
      case OpStatus::kUndecided:
      case OpStatus::kMissing: missing = true; break;
      default: undecided = undecided && op.op.ends_with("logits");
    }
  }
  for (const OpResult& op : ops) {
    if (strict && (op.status == OpStatus::kVariant || op.status == OpStatus::kFlip)) {
      return Verdict::Outcome::kFail;
    }
  }
  return undecided || missing ? Verdict::Outcome::kUndecided : Verdict::Outcome::kPass;
}

std::string to_json(const Verdict& verdict) {
  ordered_json root{
      {"verdict", outcome_name(verdict.outcome)}, {"profile", verdict.profile}, {"config_hash", verdict.config_hash}};
  const OpResult* first = verdict.first_divergence();
  root["first_divergence"] = first == nullptr ? ordered_json() : to_json(*first->divergence);
  root["ops"] = ordered_json::array();
  root["undecided"] = ordered_json::array();
  for (const OpResult& op : verdict.ops) {
    const std::string status(status_name(op.status));
    root["ops"].push_back({{"case", op.case_name},
                           {"op", op.op},
                           {"rank", op.rank},
                           {"status", op.status == OpStatus::kVariant ? "variant:" + op.variant : status},
                           {"free_status", op.free_status},
                           {"variant", op.variant},
                           {"max_bound_use", number(op.max_bound_use)},
                           {"max_ulp", number(op.max_ulp)},
                           {"bias_z", number(op.bias_z)},
                           {"cosine", number(op.cosine)},
                           {"calc_diff", number(op.calc_diff)},
                           {"reason", op.reason}});
    if (op.oracle_ratio) {
      root["ops"].back()["oracle_ratio"] = number(*op.oracle_ratio);
    }
    if (op.status == OpStatus::kUndecided || op.status == OpStatus::kMissing) {
      root["undecided"].push_back(op.case_name + "/" + op.op + ": " + op.reason);
    }
  }
  root["notes"] = verdict.notes;
  return root.dump(1);
}

std::string to_junit(const Verdict& verdict) {
  std::map<std::string, std::vector<const OpResult*>> suites;
  for (const OpResult& op : verdict.ops) {
    suites[op.case_name].push_back(&op);
  }
  std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"dsv3-verify\">\n";
  for (const auto& [name, ops] : suites) {
    int failures = 0;
    int skipped = 0;
    std::string cases;
    for (const OpResult* op : ops) {
      cases += "    <testcase classname=\"" + xml_text(name) + "\" name=\"" + xml_text(op->op) + "\"";
      if (op->status == OpStatus::kDiverged) {
        ++failures;
        cases += "><failure message=\"" + xml_text(op->divergence->reason) + "\"/></testcase>\n";
      } else if (op->status == OpStatus::kUndecided || op->status == OpStatus::kMissing) {
        ++skipped;
        cases += "><skipped message=\"" + xml_text(op->reason) + "\"/></testcase>\n";
      } else {
        cases += "/>\n";
      }
    }
    xml += "  <testsuite name=\"" + xml_text(name) + "\" tests=\"" + std::to_string(ops.size()) + "\" failures=\"" +
           std::to_string(failures) + "\" skipped=\"" + std::to_string(skipped) + "\">\n" + cases + "  </testsuite>\n";
  }
  return xml + "</testsuites>\n";
}

}  // namespace golden
