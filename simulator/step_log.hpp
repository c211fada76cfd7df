// An engine's own decode steps correct the model for the cluster that they were logged on.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "simulator/deployment.hpp"
#include "simulator/error_summary.hpp"
#include "simulator/table.hpp"

namespace simulator {

struct LoggedStep {
  double sequences = 0;  // of a DP rank
  double kv_len = 0;     // tokens in the cache of a sequence, mean
  double time_ms = 0;    // of one decode step
};

// CSV with the columns sequences, context_tokens and step_ms, step_us or step_s; '#' lines are comments. Throws InputError naming
// file and line: another column or unit, a value that is no positive number, fewer than 3 rows.
std::vector<LoggedStep> read_step_log(const std::filesystem::path& path);

struct CorrectedEngine {
  EngineProfile before;
  EngineProfile after;                // stream factor, host time and spread fitted; measured on the deployment's GPU
  std::vector<Comparison> predicted;  // of each step in ms: by the engine as it was
  std::vector<Comparison>
      corrected;  // by constants fitted without the step's fold (each fifth row, or each row of fewer than 10)
};

// time = the model's other leaves + stream factor x its kernels + host time, with the least mean |log(predicted / logged)|. `origin`
// becomes the source of the constants.
CorrectedEngine correct_engine(const Deployment& deployment,
                               const std::vector<ChosenFit>& fits,
                               MoeCurves& curves,
                               const std::vector<LoggedStep>& steps,
                               const std::string& origin);

// "correction" (constants before and after), "errors" (before and after, of steps left out), "steps" (every step).
std::vector<Table> correction_tables(const CorrectedEngine& engine, const std::vector<LoggedStep>& steps);

}  // namespace simulator
