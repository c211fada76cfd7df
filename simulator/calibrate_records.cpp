#include "simulator/calibrate_records.hpp"

#include <fmt/format.h>

#include <array>

#include "model/check.hpp"
#include "model/dtype.hpp"
#include "model/op_list.hpp"
#include "model/op_record.hpp"
#include "simulator/calibrate.hpp"

namespace simulator {

Calibration calibrate_records(const std::filesystem::path& records, const Hardware& hardware) {
  const model::OpRecordFile file = model::read_op_records(records);
  Calibration calibration{.gpu = hardware.name};
  constexpr std::array kFamilies{std::pair{OpFamily::kGemmFp8, model::DType::kF8E4M3},
                                 std::pair{OpFamily::kGemmBf16, model::DType::kBF16}};
  for (const auto& [family, dtype] : kFamilies) {
    std::vector<MeasuredOp> rows;
    std::string device;
    for (const model::OpRecord& record : file.records) {
      const bool is_measured =
          record.source == model::RecordSource::kCuda || record.source == model::RecordSource::kReference;
      if (is_measured && record.kind == model::op_kind_name(model::OpKind::kLinear) &&
          record.dtype == model::dtype_name(dtype) && record.time_us > 0) {
        rows.push_back({{.weight_bytes = static_cast<double>(record.weight_bytes),
                         .other_bytes = static_cast<double>(record.activation_bytes),
                         .weight_flops = static_cast<double>(record.flops)},
                        record.time_us});
        device = record.device;
      }
    }
    if (!rows.empty()) {
      const std::vector<double> start{10, 0.7, 0.5};
      OpFit fit = fit_op(family, rows, start, peaks(hardware), records.string());
      fit.source = fmt::format("op records of linears on {}", device);
      calibration.fits.push_back(std::move(fit));
    }
  }
  if (calibration.fits.empty()) {
    model::throw_input_error("{}: no measured rows of kind linear with dtype F8_E4M3 or BF16", records.string());
  }
  return calibration;
}

}  // namespace simulator
