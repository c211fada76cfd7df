#include "simulator/op_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "model/check.hpp"
#include "simulator/error_summary.hpp"

namespace simulator {
namespace {

using Points = std::span<const TablePoint>;

// Shapes further apart than this have nothing to say of one another.
constexpr double kMostOctaves = 2;
constexpr size_t kMostSites = 4;

// log(floor / time), and how far it was carried.
struct Utilisation {
  double log = 0;
  AnswerKind kind = AnswerKind::kExact;
};

AnswerKind further(AnswerKind left, AnswerKind right) {
  return std::max(left, right);
}

// The points whose axis `axis` has the value of the first one.
Points first_group(Points points, size_t axis) {
  const double value = points.front().axes.at(axis);
  const auto end = std::ranges::find_if(points, [&](const TablePoint& point) { return point.axes.at(axis) != value; });
  return points.first(static_cast<size_t>(end - points.begin()));
}

// Points in a family's terms.
class Reader {
 public:
  Reader(OpFamily family, const Peaks& peaks) : family_(family), peaks_(peaks), axes_(op_axes(family)) {}

  [[nodiscard]] Utilisation at(Points points, const OpAxes& query) const {
    return axes_.num_site_axes == 0 ? along(points, 0, query) : over_sites(points, query);
  }

  [[nodiscard]] bool same_site(const OpAxes& left, const OpAxes& right) const {
    return std::equal(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(axes_.num_site_axes), right.begin());
  }

 private:
  [[nodiscard]] double log_of(const TablePoint& point) const {
    return std::log(floor_us(family_, point.work, peaks_) / point.time_us);
  }

  // Points agree on the axes before `axis` and are sorted by those from it on.
  [[nodiscard]] Utilisation along(Points points, size_t axis, const OpAxes& query) const {
    if (axis == axes_.names.size()) {
      return {log_of(points.front())};
    }
    const double wanted = query.at(axis);
    Points below;
    while (!points.empty()) {
      const Points group = first_group(points, axis);
      const double value = group.front().axes.at(axis);
      if (value == wanted) {
        return along(group, axis + 1, query);
      }
      if (value > wanted) {
        if (below.empty()) {
          return held(group, axis, query);
        }
        const Utilisation low = along(below, axis + 1, query);
        const Utilisation high = along(group, axis + 1, query);
        const double from = below.front().axes.at(axis);
        const double part = std::log(wanted / from) / std::log(value / from);
        return {(1 - part) * low.log + part * high.log,
                further(AnswerKind::kInterpolated, further(low.kind, high.kind))};
      }
      below = group;
      points = points.subspan(group.size());
    }
    return held(below, axis, query);
  }

  [[nodiscard]] Utilisation held(Points group, size_t axis, const OpAxes& query) const {
    return {along(group, axis + 1, query).log, AnswerKind::kHeld};
  }

  [[nodiscard]] double octaves(const OpAxes& left, const OpAxes& right) const {
    double sum = 0;
    for (size_t i = 0; i < axes_.num_site_axes; ++i) {
      const double distance = std::log2(left.at(i) / right.at(i));
      sum += distance * distance;
    }
    return std::sqrt(sum);
  }

  [[nodiscard]] Utilisation over_sites(Points points, const OpAxes& query) const {
    std::vector<std::pair<double, Points>> sites;
    while (!points.empty()) {
      const auto end = std::ranges::find_if(
          points, [&](const TablePoint& point) { return !same_site(point.axes, points.front().axes); });
      const Points site = points.first(static_cast<size_t>(end - points.begin()));
      sites.emplace_back(octaves(site.front().axes, query), site);
      points = points.subspan(site.size());
    }
    std::ranges::stable_sort(sites, {}, &std::pair<double, Points>::first);
    if (sites.front().first == 0) {
      return along(sites.front().second, axes_.num_site_axes, query);
    }
    // Inverse square of the distance, as in the logarithm of both sizes.
    Utilisation mean{.log = 0, .kind = AnswerKind::kNearSites};
    double weights = 0;
    for (size_t i = 0; i < std::min(sites.size(), kMostSites); ++i) {
      const auto& [distance, site] = sites[i];
      if (i > 0 && distance > kMostOctaves) {
        break;
      }
      const Utilisation of_site = along(site, axes_.num_site_axes, query);
      const double weight = 1 / (distance * distance);
      mean.log += weight * of_site.log;
      weights += weight;
      mean.kind = distance > kMostOctaves ? AnswerKind::kHeld : further(mean.kind, of_site.kind);
    }
    mean.log /= weights;
    return mean;
  }

  OpFamily family_;
  const Peaks& peaks_;
  const OpAxisNames& axes_;
};

std::vector<TablePoint> merged(std::vector<TablePoint> points) {
  std::ranges::stable_sort(points, {}, &TablePoint::axes);
  std::vector<TablePoint> result;
  for (size_t begin = 0; begin < points.size();) {
    size_t end = begin;
    std::vector<double> times;
    for (; end < points.size() && points[end].axes == points[begin].axes; ++end) {
      times.push_back(points[end].time_us);
    }
    result.push_back(points[begin]);
    result.back().time_us = quantile(std::move(times), 0.5);
    begin = end;
  }
  return result;
}

}  // namespace

const OpAxisNames& op_axes(OpFamily family) {
  static const OpAxisNames kGemm{{"n", "k", "m"}, 2};
  static const OpAxisNames kExperts{{"active_experts", "rows"}, 0};
  static const OpAxisNames kAttention{{"heads", "kv_len", "sequences"}, 0};
  static const OpAxisNames kAllReduce{{"num_ranks", "message_bytes"}, 0};
  static const OpAxisNames kPrefill{{"tokens"}, 0};
  static const OpAxisNames kNone;
  switch (family) {
    case OpFamily::kGemmFp8:
    case OpFamily::kGemmBf16: return kGemm;
    case OpFamily::kExperts: return kExperts;
    case OpFamily::kAttentionBf16:
    case OpFamily::kAttentionFp8: return kAttention;
    case OpFamily::kAllReduce: return kAllReduce;
    case OpFamily::kPrefillScores: return kPrefill;
    case OpFamily::kDispatch:
    case OpFamily::kCombine: return kNone;
  }
  CHECK(false);
}

std::string_view answer_kind_name(AnswerKind kind) {
  switch (kind) {
    case AnswerKind::kExact: return "exact row";
    case AnswerKind::kInterpolated: return "interpolated";
    case AnswerKind::kNearSites: return "near shapes";
    case AnswerKind::kHeld: return "held at the edge";
  }
  CHECK(false);
}

OpTable::OpTable(OpFamily family, const Peaks& peaks, std::vector<TablePoint> points, std::string file)
    : family_(family), peaks_(peaks), file_(std::move(file)) {
  num_below_floor_ = static_cast<int64_t>(std::erase_if(
      points, [&](const TablePoint& point) { return point.time_us < floor_us(family, point.work, peaks); }));
  if (points.empty() || op_axes(family).names.empty()) {
    model::throw_input_error("{}: no usable row for {}", file_, op_family_info(family).name);
  }
  points_ = merged(std::move(points));
  measure_residuals();
}

OpAnswer OpTable::at(const OpAxes& axes, const OpWork& work) const {
  const Utilisation utilisation = Reader(family_, peaks_).at(points_, axes);
  OpAnswer answer{.floor_us = floor_us(family_, work, peaks_), .kind = utilisation.kind};
  if (answer.kind == AnswerKind::kExact) {
    const auto row = std::ranges::lower_bound(points_, axes, {}, &TablePoint::axes);
    answer.time_us = row->time_us;
    answer.line = row->line;
    return answer;
  }
  const Residual& residual = residuals_.at(static_cast<size_t>(answer.kind));
  answer.time_us = answer.floor_us / std::exp(utilisation.log);
  answer.num_left_out = residual.num_rows;
  answer.median_frac = residual.median_frac;
  answer.p90_frac = residual.p90_frac;
  return answer;
}

std::string OpTable::source(const OpAnswer& answer) const {
  if (answer.kind == AnswerKind::kExact) {
    return fmt::format("{}:{}: the row itself", file_, answer.line);
  }
  const std::string error = answer.num_left_out == 0
                                ? "no row could be left out to test this"
                                : fmt::format("{} rows left out and answered so: error median {:.1f} %, p90 {:.1f} %",
                                              answer.num_left_out,
                                              100 * answer.median_frac,
                                              100 * answer.p90_frac);
  return fmt::format("{}: {}; {}", file_, answer_kind_name(answer.kind), error);
}

// Every row without itself, and with scattered shapes every row without its shape.
void OpTable::measure_residuals() {
  const Reader reader(family_, peaks_);
  std::array<std::vector<double>, 4> errors;
  const auto answer_without = [&](const TablePoint& point, auto is_left_out) {
    std::vector<TablePoint> kept;
    std::ranges::copy_if(
        points_, std::back_inserter(kept), [&](const TablePoint& other) { return !is_left_out(other); });
    if (!kept.empty()) {
      const Utilisation utilisation = reader.at(kept, point.axes);
      const double time_us = floor_us(family_, point.work, peaks_) / std::exp(utilisation.log);
      errors.at(static_cast<size_t>(utilisation.kind)).push_back(std::abs(time_us / point.time_us - 1));
    }
  };
  const bool has_sites = op_axes(family_).num_site_axes > 0;
  for (const TablePoint& point : points_) {
    const auto is_of_site = [&](const TablePoint& other) { return reader.same_site(other.axes, point.axes); };
    if (!has_sites || std::ranges::count_if(points_, is_of_site) > 1) {
      answer_without(point, [&](const TablePoint& other) { return &other == &point; });
    }
    if (has_sites) {
      answer_without(point, is_of_site);
    }
  }
  for (size_t kind = 0; kind < errors.size(); ++kind) {
    residuals_.at(kind) = {.num_rows = std::ssize(errors.at(kind)),
                           .median_frac = quantile(errors.at(kind), 0.5),
                           .p90_frac = quantile(errors.at(kind), 0.9)};
  }
}

}  // namespace simulator
