#include <cmath>

#include "golden/metrics.hpp"
#include "tools/score.hpp"

namespace tools {
namespace {

using Values = std::vector<double>;

struct Sums {
  double xx = 0;
  double yy = 0;
  double xy = 0;
  double x = 0;
  double y = 0;
  double dd = 0;
};

Sums sums_of(const Values& expected, const Values& got) {
  Sums s;
  for (size_t i = 0; i < expected.size(); ++i) {
    s.xx += expected[i] * expected[i];
    s.yy += got[i] * got[i];
    s.xy += expected[i] * got[i];
    s.x += expected[i];
    s.y += got[i];
    s.dd += (expected[i] - got[i]) * (expected[i] - got[i]);
  }
  return s;
}

bool both_zero(const Sums& s) {
  return s.xx == 0 && s.yy == 0;
}

bool calc_diff_holds(const Values& expected, const Values& got) {
  const Sums s = sums_of(expected, got);
  return both_zero(s) || s.dd / (s.xx + s.yy) <= 1e-3;
}

bool allclose_holds(const Values& expected, const Values& got) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!(std::abs(expected[i] - got[i]) <= 1e-5 + 1.6e-2 * std::abs(expected[i]))) {
      return false;
    }
  }
  return true;
}

bool cosine_holds(const Values& expected, const Values& got) {
  const Sums s = sums_of(expected, got);
  return both_zero(s) || s.xy / std::sqrt(s.xx * s.yy) >= 0.999;
}

bool energy_holds(const Values& expected, const Values& got) {
  const Sums s = sums_of(expected, got);
  return both_zero(s) || std::abs(s.yy - s.xx) / s.xx <= 1e-3;
}

bool pcc_holds(const Values& expected, const Values& got) {
  const Sums s = sums_of(expected, got);
  const auto n = static_cast<double>(expected.size());
  const double covariance = s.xy - s.x * s.y / n;
  const double x_variance = s.xx - s.x * s.x / n;
  const double y_variance = s.yy - s.y * s.y / n;
  if (x_variance <= 0 && y_variance <= 0) {
    return s.dd == 0;  // two constants have no correlation
  }
  return covariance / std::sqrt(x_variance * y_variance) >= 0.99;
}

bool share_holds(const Values& expected, const Values& got) {
  size_t num_beyond = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    num_beyond += std::abs(expected[i] - got[i]) <= 2.0 / 128 * std::abs(expected[i]) ? 0 : 1;
  }
  return static_cast<double>(num_beyond) <= 0.02 * static_cast<double>(expected.size());
}

}  // namespace

const std::vector<ScoreMetric>& score_metrics() {
  static const std::vector<ScoreMetric> metrics{
      {"calc_diff", "|x-y|^2 / (|x|^2 + |y|^2) <= 1e-3", calc_diff_holds},
      {"allclose", "|x-y| <= 1e-5 + 1.6e-2 |x| everywhere", allclose_holds},
      {"cosine", "<x,y> / (|x| |y|) >= 0.999", cosine_holds},
      {"energy", "| |y|^2 - |x|^2 | / |x|^2 <= 1e-3", energy_holds},
      {"pcc", "Pearson's correlation >= 0.99", pcc_holds},
      {"2% of 2/128", "at most 2 % of elements beyond 2/128 |x|", share_holds},
  };
  return metrics;
}

std::map<std::string, MetricFinding> findings_of(const Trial& trial) {
  std::map<std::string, MetricFinding> findings;
  for (const auto& op : trial.verdict.ops) {
    const std::string name = op.case_name + "/" + op.op;
    const auto right = trial.right.tensors.find(name);
    const auto changed = trial.changed.tensors.find(name);
    const bool comparable = right != trial.right.tensors.end() && changed != trial.changed.tensors.end() &&
                            right->second.shape == changed->second.shape && right->second.dtype != model::DType::kI32;
    if (!comparable) {
      continue;
    }
    const auto expected = model::to_double(right->second);
    const auto got = model::to_double(changed->second);
    const bool is_logits = op.op == "logits" || (op.op.starts_with("mtp.") && op.op.ends_with(".logits"));
    for (const auto& metric : score_metrics()) {
      if (metric.holds(expected, got)) {
        continue;
      }
      auto& finding = findings[metric.name];
      finding.in_logits = finding.in_logits || is_logits;
      finding.first_op = finding.first_op.empty() ? op.op : finding.first_op;
    }
  }
  return findings;
}

}  // namespace tools
