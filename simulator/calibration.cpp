#include "simulator/calibration.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "model/check.hpp"
#include "model/json_fields.hpp"
#include "model/printable.hpp"
#include "model/strict_json.hpp"
#include "simulator/data_files.hpp"

namespace simulator {
namespace {

constexpr uintmax_t kMaxFileBytes = 1 << 22;
constexpr size_t kMaxDepth = 12;

OpFit read_fit(const OpFamilyInfo& info, model::JsonFields& fields) {
  OpFit fit{.family = info.family};
  for (const std::string_view name : info.constants) {
    fit.constants.push_back(fields.positive_number(std::string(name)));
  }
  fit.source = fields.text_or("source", "");
  if (fit.source.empty()) {
    fields.refuse("source", "expected which measurements the constants come from");
  }
  fit.residuals = {.num_rows = fields.integer("num_rows", 0),
                   .num_below_floor = fields.integer("num_below_floor", 0),
                   .median_frac = fields.non_negative_number_or("median_abs_error_frac", 0),
                   .p90_frac = fields.non_negative_number_or("p90_abs_error_frac", 0)};
  return fit;
}

nlohmann::ordered_json fit_json(const OpFit& fit) {
  const OpFamilyInfo& info = op_family_info(fit.family);
  nlohmann::ordered_json object;
  for (size_t i = 0; i < info.constants.size(); ++i) {
    object[std::string(info.constants[i])] = fit.constants[i];
  }
  object["num_rows"] = fit.residuals.num_rows;
  object["num_below_floor"] = fit.residuals.num_below_floor;
  object["median_abs_error_frac"] = fit.residuals.median_frac;
  object["p90_abs_error_frac"] = fit.residuals.p90_frac;
  object["source"] = fit.source;
  return object;
}

void refuse_unread(const model::JsonFields& fields) {
  if (const std::vector<std::string> unread = fields.unread_keys(); !unread.empty()) {
    fields.fail("unknown fields: " + model::printable_list(unread));
  }
}

// Calibrations and hardware name GPUs alike; a file of the user's own may be none of them.
double balance(const Hardware& hardware) {
  const Peaks peak = peaks(hardware);
  return std::log(peak.fp8_math / peak.memory);
}

}  // namespace

std::vector<Calibration> parse_calibrations(std::string_view json_text, const std::string& origin) {
  const nlohmann::json document = model::parse_strict_json(json_text, origin, kMaxDepth);
  if (!document.is_object()) {
    model::throw_input_error("{}: expected an object with a calibration for each GPU", origin);
  }
  model::JsonFields gpus(document, origin, "");
  std::vector<Calibration> calibrations;
  for (const auto& [gpu, unused] : document.items()) {
    Calibration calibration{.gpu = gpu};
    std::optional<model::JsonFields> ops = gpus.object(gpu);
    if (!ops) {
      gpus.refuse(gpu, "expected an object of op families");
    }
    for (const OpFamily family : kOpFamilies) {
      const OpFamilyInfo& info = op_family_info(family);
      if (std::optional<model::JsonFields> fields = ops->object(std::string(info.name))) {
        calibration.fits.push_back(read_fit(info, *fields));
        refuse_unread(*fields);
      }
    }
    refuse_unread(*ops);
    calibrations.push_back(std::move(calibration));
  }
  if (calibrations.empty()) {
    model::throw_input_error("{}: expected at least one GPU", origin);
  }
  return calibrations;
}

std::string calibration_json(const std::vector<Calibration>& calibrations) {
  nlohmann::ordered_json document;
  for (const Calibration& calibration : calibrations) {
    for (const OpFit& fit : calibration.fits) {
      document[calibration.gpu][std::string(op_family_info(fit.family).name)] = fit_json(fit);
    }
  }
  return document.dump(1) + "\n";
}

std::vector<Calibration> built_in_calibrations() {
  return parse_calibrations(data_file("calibration/ops.json"), "built-in calibration");
}

std::vector<Calibration> read_calibrations(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    model::throw_input_error("calibration {}: expected a file written by dsv3-sim calibrate", model::printable(path));
  }
  if (std::filesystem::file_size(path, error) > kMaxFileBytes) {
    model::throw_input_error("{}: expected a calibration of at most {} bytes", path, kMaxFileBytes);
  }
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return parse_calibrations(text.str(), path);
}

OpTime op_time(const ChosenFit& chosen, const OpCall& call, const Peaks& peaks) {
  if (chosen.table == nullptr || call.axes == OpAxes{}) {
    return {.time_us = predict_us(call.family, chosen.fit.constants, call.work, peaks)};
  }
  OpAnswer answer = chosen.table->at(call.axes, call.work);
  if (chosen.table->peaks() != peaks) {
    // Other hardware than the measured: as much faster as the constants say, whose fixed times stay.
    const auto& constants = chosen.fit.constants;
    answer.time_us *= predict_us(call.family, constants, call.work, peaks) /
                      predict_us(call.family, constants, call.work, chosen.table->peaks());
    answer.floor_us = floor_us(call.family, call.work, peaks);
  }
  return {.time_us = answer.time_us, .answer = answer};
}

std::vector<ChosenFit> choose_fits(const std::vector<Calibration>& calibrations, const Hardware& hardware) {
  std::vector<ChosenFit> chosen;
  for (const OpFamily family : kOpFamilies) {
    const OpFit* best = nullptr;
    std::string best_gpu;
    double best_distance = 0;
    for (const Calibration& calibration : calibrations) {
      const auto fit = std::ranges::find(calibration.fits, family, &OpFit::family);
      if (fit == calibration.fits.end()) {
        continue;
      }
      constexpr double kOtherGeneration = 100;
      double distance = 0;
      if (calibration.gpu != hardware.name) {
        const Hardware other = load_hardware(calibration.gpu);
        distance =
            1e-6 + std::abs(balance(other) - balance(hardware)) +
            kOtherGeneration * std::abs(static_cast<int>(other.generation) - static_cast<int>(hardware.generation));
      }
      if (best == nullptr || distance < best_distance) {
        best = &*fit;
        best_gpu = calibration.gpu;
        best_distance = distance;
      }
    }
    if (best == nullptr) {
      model::throw_input_error("calibration: no GPU has constants for {}", op_family_info(family).name);
    }
    chosen.push_back({.fit = *best, .measured_on = best_gpu, .is_borrowed = best_gpu != hardware.name});
  }
  return chosen;
}

}  // namespace simulator
