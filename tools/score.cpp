#include "tools/score.hpp"

#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/cli.hpp"
#include "tools/legal/bound_use.hpp"

namespace tools {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kBoundOrders = 6;  // drawn for each op whose bound is looked at

// What a judge made of one fault.
enum class Found { kMissed, kElsewhere, kAtItsOp };

std::string_view found_name(Found found) {
  switch (found) {
    case Found::kMissed: return "missed";
    case Found::kElsewhere: return "elsewhere";
    case Found::kAtItsOp: return "at its op";
  }
  return "missed";
}

struct FaultRow {
  const Fault* fault = nullptr;
  Found ours = Found::kMissed;
  std::map<std::string, bool> in_logits;  // by metric
  std::map<std::string, Found> op_wise;
};

// Legal runs of one kind, and how many of them each judge calls faulty.
struct LegalRow {
  std::string kind;
  int64_t num_runs = 0;
  int64_t ours = 0;
  std::map<std::string, int64_t> in_logits;
  std::map<std::string, int64_t> op_wise;
};

Found where(const Fault& fault, const std::string& op) {
  if (op.empty()) {
    return Found::kMissed;
  }
  return fnmatch(fault.starts_at.c_str(), op.c_str(), 0) == 0 ? Found::kAtItsOp : Found::kElsewhere;
}

FaultRow judge_fault(Trials& trials, const Fault& fault) {
  const Trial trial = trials.run(fault);
  FaultRow row{.fault = &fault, .ours = Found::kMissed, .in_logits = {}, .op_wise = {}};
  for (const auto& op : trial.verdict.ops) {
    if (op.status == golden::OpStatus::kDiverged && row.ours != Found::kElsewhere) {
      row.ours = where(fault, op.op);  // one wrong op among many blamed is not "at its op"
    }
  }
  auto findings = findings_of(trial);
  for (const auto& metric : score_metrics()) {
    row.in_logits[metric.name] = findings[metric.name].in_logits;
    row.op_wise[metric.name] = where(fault, findings[metric.name].first_op);
  }
  return row;
}

LegalRow judge_legal(Trials& trials, const std::string& kind, LegalFreedom freedom, int64_t num_runs) {
  LegalRow row{.kind = kind, .num_runs = num_runs, .ours = 0, .in_logits = {}, .op_wise = {}};
  for (int64_t seed = 0; seed < num_runs; ++seed) {
    show_progress(fmt::format("legal run {} of {}, {}", seed + 1, num_runs, kind));
    const auto& places = legal_places();
    const auto& place = places[static_cast<size_t>(seed) % places.size()];
    const Trial trial = run_legally(trials, place, draw_legal_run(static_cast<uint64_t>(seed), freedom));
    row.ours += trial.verdict.outcome == golden::Verdict::Outcome::kPass ? 0 : 1;
    for (const auto& [name, finding] : findings_of(trial)) {
      row.in_logits[name] += finding.in_logits ? 1 : 0;
      row.op_wise[name] += finding.first_op.empty() ? 0 : 1;
    }
  }
  return row;
}

struct Totals {
  int64_t caught = 0;
  int64_t at_its_op = 0;

  void add(Found found) {
    caught += found == Found::kMissed ? 0 : 1;
    at_its_op += found == Found::kAtItsOp ? 1 : 0;
  }
};

// A bound that a legal run leaves is wrong; one that no legal run uses a fiftieth of is loose.
bool is_fitting(const legal::BoundUse& use) {
  return use.num_elements == 0 || (use.largest >= 1.0 / 50 && use.largest <= 1);
}

using BoundUses = std::map<std::string, legal::BoundUse>;

struct Score {
  std::vector<FaultRow> faults;
  std::vector<LegalRow> legal;
  BoundUses bounds;

  [[nodiscard]] Totals ours() const {
    Totals totals;
    for (const auto& row : faults) {
      totals.add(row.ours);
    }
    return totals;
  }
  [[nodiscard]] Totals op_wise(const std::string& metric) const {
    Totals totals;
    for (const auto& row : faults) {
      totals.add(row.op_wise.at(metric));
    }
    return totals;
  }
  [[nodiscard]] int64_t in_logits(const std::string& metric) const {
    int64_t caught = 0;
    for (const auto& row : faults) {
      caught += row.in_logits.at(metric) ? 1 : 0;
    }
    return caught;
  }
  [[nodiscard]] bool perfect() const {
    for (const auto& row : legal) {
      if (row.ours > 0) {
        return false;
      }
    }
    if (!std::ranges::all_of(bounds, [](const auto& entry) { return is_fitting(entry.second); })) {
      return false;
    }
    return ours().at_its_op == static_cast<int64_t>(faults.size());
  }
};

int64_t count_of(const std::map<std::string, int64_t>& counts, const std::string& name) {
  const auto found = counts.find(name);
  return found == counts.end() ? 0 : found->second;
}

std::string cell(const FaultRow& row, const std::string& metric) {
  const Found found = row.op_wise.at(metric);
  return fmt::format("{} {}",
                     row.in_logits.at(metric) ? "L" : "-",
                     found == Found::kAtItsOp     ? "op"
                     : found == Found::kElsewhere ? "late"
                                                  : "-");
}

void print_score(const Score& score) {
  fmt::print("{:<8}{:<34}{:<10}", "fault", "op where it starts", "ours");
  for (const auto& metric : score_metrics()) {
    fmt::print("{:<13}", metric.name);
  }
  fmt::print("\n");
  for (const auto& row : score.faults) {
    fmt::print("{:<8}{:<34}{:<10}", row.fault->id, row.fault->starts_at, found_name(row.ours));
    for (const auto& metric : score_metrics()) {
      fmt::print("{:<13}", cell(row, metric.name));
    }
    fmt::print("\n");
  }
  const auto num_faults = score.faults.size();
  fmt::print(
      "L: the final logits are outside the limit. op: walking through all tensors, the first outside the limit is "
      "where the\n"
      "fault starts; late: it is a later one. -: nothing is outside the limit.\n\n");
  std::string headings;
  for (const auto& row : score.legal) {
    headings += fmt::format("{:<22}", fmt::format("{} {}", row.num_runs, row.kind));
  }
  fmt::print("{:<13}{:<10}{:<10}{:<10}false alarms, logits / any tensor, of\n", "", "logits", "any op", "right op");
  fmt::print("{:<13}{:<10}{:<10}{:<10}{}\n", "", "caught", "caught", "named", headings);
  const auto print_row =
      [&](const std::string& name, const std::string& logits, Totals totals, const std::string& alarms) {
        fmt::print("{:<13}{:<10}{:<10}{:<10}{}\n", name, logits, totals.caught, totals.at_its_op, alarms);
      };
  std::string alarms;
  for (const auto& row : score.legal) {
    alarms += fmt::format("{:<22}", row.ours);
  }
  print_row("ours", "", score.ours(), alarms);
  for (const auto& metric : score_metrics()) {
    alarms.clear();
    for (const auto& row : score.legal) {
      alarms += fmt::format(
          "{:<22}", fmt::format("{} / {}", count_of(row.in_logits, metric.name), count_of(row.op_wise, metric.name)));
    }
    print_row(metric.name, std::to_string(score.in_logits(metric.name)), score.op_wise(metric.name), alarms);
  }
  fmt::print("of {} faults\n", num_faults);
  if (!score.bounds.empty()) {
    fmt::print("\nlargest legal deviation, as a part of the bound (exact: the rule leaves no freedom)\n");
  }
  for (const auto& [kind, use] : score.bounds) {
    fmt::print("{:<34}{}\n", kind, use.num_elements == 0 ? "exact" : fmt::format("{:.3f}", use.largest));
  }
}

ordered_json to_json(const Score& score) {
  ordered_json root{
      {"metrics", ordered_json::object()}, {"faults", ordered_json::array()}, {"legal", ordered_json::array()}};
  const Totals ours = score.ours();
  root["totals"]["ours"] = {{"op_wise", ours.caught}, {"right_op", ours.at_its_op}};
  for (const auto& metric : score_metrics()) {
    root["metrics"][metric.name] = metric.limit;
    const Totals totals = score.op_wise(metric.name);
    root["totals"][metric.name] = {
        {"logits", score.in_logits(metric.name)}, {"op_wise", totals.caught}, {"right_op", totals.at_its_op}};
  }
  for (const auto& row : score.faults) {
    ordered_json entry{{"id", row.fault->id},
                       {"op", row.fault->starts_at},
                       {"fixture", row.fault->fixture},
                       {"ours", found_name(row.ours)}};
    for (const auto& metric : score_metrics()) {
      entry["metrics"][metric.name] = {{"logits", row.in_logits.at(metric.name)},
                                       {"op_wise", found_name(row.op_wise.at(metric.name))}};
    }
    root["faults"].push_back(std::move(entry));
  }
  for (const auto& row : score.legal) {
    ordered_json entry{{"kind", row.kind}, {"runs", row.num_runs}, {"ours", row.ours}};
    for (const auto& metric : score_metrics()) {
      entry["metrics"][metric.name] = {{"logits", count_of(row.in_logits, metric.name)},
                                       {"op_wise", count_of(row.op_wise, metric.name)}};
    }
    root["legal"].push_back(std::move(entry));
  }
  for (const auto& [kind, use] : score.bounds) {
    root["bounds"][kind] = {
        {"largest_use", use.largest}, {"elements", use.num_elements}, {"exact_elements", use.num_exact}};
  }
  return root;
}

}  // namespace

void add_score(CLI::App& app, ScoreFlags& flags) {
  app.add_flag("--json", flags.json, "machine-readable");
  app.add_option("--legal", flags.num_legal, "legal runs of each kind")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  app.add_option("--threads", flags.num_threads, "threads")->check(CLI::Range(1, 1024));
}

int run_score(const ScoreFlags& flags) {
  Trials trials(flags.num_threads);
  Score score;
  for (const Fault& fault : all_faults()) {
    show_progress(fmt::format("fault {}", fault.id));
    score.faults.push_back(judge_fault(trials, fault));
  }
  score.legal.push_back(judge_legal(trials, "other orders", LegalFreedom::kOrders, flags.num_legal));
  score.legal.push_back(judge_legal(trials, "other rules too", LegalFreedom::kOrdersAndRules, flags.num_legal));
  if (flags.num_legal > 0) {
    score.bounds = legal::bound_uses(trials, kBoundOrders);
  }
  clear_progress();
  if (flags.json) {
    fmt::print("{}\n", to_json(score).dump(1));
  } else {
    print_score(score);
  }
  return score.perfect() ? kExitOk : kExitCheckFailed;
}

}  // namespace tools
