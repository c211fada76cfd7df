// Measured times of one op family on one GPU, and what they say of a call that nobody measured. What is carried over is the utilisation
// (hardware floor over time), which changes slowly with size; the time is the floor of the call over it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/op_fit.hpp"

namespace simulator {

// Axes of a call, in the order of op_axes(); those that a family lacks are 0.
using OpAxes = std::array<double, 3>;

// Names of a family's axes. The first `num_site_axes` are shapes that lie scattered and are matched as a whole (the matrix of a linear
// layer); along the others, outermost first, one interpolates. Empty: the family has no table.
struct OpAxisNames {
  std::vector<std::string_view> names;
  size_t num_site_axes = 0;
};

const OpAxisNames& op_axes(OpFamily family);

struct TablePoint {
  OpAxes axes = {};
  OpWork work;
  double time_us = 0;
  int64_t line = 0;
};

enum class AnswerKind {
  kExact,         // a row
  kInterpolated,  // between rows on every axis
  kNearSites,     // utilisation of other shapes within two octaves, none of this one
  kHeld,          // beyond the rows of an axis, or further from every shape: the utilisation at the edge
};

std::string_view answer_kind_name(AnswerKind kind);

struct OpAnswer {
  double time_us = 0;
  double floor_us = 0;
  AnswerKind kind = AnswerKind::kHeld;
  int64_t line = 0;  // kExact: of the row
  // |answer / measured - 1| of rows that were left out and answered in the same way; 0 for kExact, and where no row was.
  int64_t num_left_out = 0;
  double median_frac = 0;
  double p90_frac = 0;
};

class OpTable {
 public:
  // Rows that beat the hardware's floor are dropped, rows with equal axes are one with the median time. `file` opens every source.
  // Throws InputError without a usable row.
  OpTable(OpFamily family, const Peaks& peaks, std::vector<TablePoint> points, std::string file);

  // Axes are above 0. `work`: of the same call.
  [[nodiscard]] OpAnswer at(const OpAxes& axes, const OpWork& work) const;
  // Where an answer of this table comes from, in one line.
  [[nodiscard]] std::string source(const OpAnswer& answer) const;

  [[nodiscard]] size_t num_points() const { return points_.size(); }
  [[nodiscard]] int64_t num_below_floor() const { return num_below_floor_; }
  [[nodiscard]] const Peaks& peaks() const { return peaks_; }

 private:
  struct Residual {
    int64_t num_rows = 0;
    double median_frac = 0;
    double p90_frac = 0;
  };

  void measure_residuals();

  OpFamily family_;
  Peaks peaks_;
  std::vector<TablePoint> points_;  // sorted by axes
  std::string file_;
  int64_t num_below_floor_ = 0;
  std::array<Residual, 4> residuals_ = {};  // by kind
};

}  // namespace simulator
