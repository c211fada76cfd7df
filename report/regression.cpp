#include "report/regression.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "model/check.hpp"

namespace report {
namespace {

constexpr double kFalseAlarms = 0.01;     // of the whole list
constexpr double kSmallestChange = 0.01;  // share of the time that is worth a word
constexpr int64_t kFewestRepetitions = 5;

std::string key_of(const model::OpRecord& record) {
  return fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}",
                     record.op,
                     record.rank,
                     record.phase,
                     record.tokens,
                     record.batch,
                     record.context_len,
                     model::record_source_name(record.source),
                     record.device,
                     record.config_hash);
}

bool is_computed(const model::OpRecord& record) {
  return record.source == model::RecordSource::kSimulated || record.source == model::RecordSource::kLimit;
}

// Of a median; absent where the record does not say.
std::optional<double> standard_error_us(const model::OpRecord& record) {
  if (is_computed(record)) {
    return 0;
  }
  if (!record.time_us_p10 || !record.time_us_p90 || record.repetitions < kFewestRepetitions) {
    return std::nullopt;
  }
  constexpr double kMedianOverMean = 1.2533;  // standard error of a median over that of a mean, normal
  constexpr double kSigmasBetween = 2.5631;   // p10 to p90 of a normal
  return kMedianOverMean * (*record.time_us_p90 - *record.time_us_p10) / kSigmasBetween /
         std::sqrt(static_cast<double>(record.repetitions));
}

}  // namespace

std::string_view change_name(Change change) {
  switch (change) {
    case Change::kSame: return "same";
    case Change::kSlower: return "slower";
    case Change::kFaster: return "faster";
    case Change::kUnclear: return "unclear";
  }
  model::throw_check_error(__FILE__, __LINE__, "unknown change");
}

int64_t Regression::count(Change change) const {
  return std::ranges::count(ops, change, &ChangedOp::change);
}

Regression compare_records(const std::vector<RecordFile>& now, const std::vector<RecordFile>& before) {
  std::unordered_map<std::string, const model::OpRecord*> old;
  for (const RecordFile& file : before) {
    for (const model::OpRecord& record : file.content.records) {
      if (record.source != model::RecordSource::kEmulated) {
        old.emplace(key_of(record), &record);
      }
    }
  }
  Regression regression;
  std::vector<std::pair<const model::OpRecord*, const model::OpRecord*>> pairs;
  for (const RecordFile& file : now) {
    for (const model::OpRecord& record : file.content.records) {
      if (record.source == model::RecordSource::kEmulated) {
        continue;
      }
      const auto found = old.find(key_of(record));
      if (found == old.end()) {
        ++regression.num_only_new;
      } else {
        pairs.emplace_back(&record, found->second);
        old.erase(found);
      }
    }
  }
  regression.num_only_old = std::ssize(old);
  // P(|z| > t) <= exp(-t^2 / 2), so this t keeps num_pairs of them below kFalseAlarms together.
  regression.sigmas = std::sqrt(2 * std::log(std::max<double>(2, static_cast<double>(pairs.size())) / kFalseAlarms));
  for (const auto& [fresh, past] : pairs) {
    ChangedOp changed{.op = fresh->op,
                      .source = std::string(model::record_source_name(fresh->source)),
                      .device = fresh->device,
                      .phase = fresh->phase,
                      .rank = fresh->rank,
                      .old_us = past->time_us,
                      .new_us = fresh->time_us};
    const auto fresh_error = standard_error_us(*fresh);
    const auto past_error = standard_error_us(*past);
    const double difference = changed.new_us - changed.old_us;
    if (fresh_error && past_error) {
      changed.noise_us = regression.sigmas * std::hypot(*fresh_error, *past_error);
    }
    const bool is_small = std::abs(difference) <= kSmallestChange * changed.old_us;
    if (is_small || (fresh_error && past_error && std::abs(difference) <= changed.noise_us)) {
      changed.change = Change::kSame;
    } else if (!fresh_error || !past_error) {
      changed.change = Change::kUnclear;
    } else {
      changed.change = difference > 0 ? Change::kSlower : Change::kFaster;
    }
    regression.ops.push_back(std::move(changed));
  }
  return regression;
}

}  // namespace report
