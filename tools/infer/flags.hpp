// The options of dsv3-infer that run the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/sampling.hpp"
#include "tools/common.hpp"
#include "tools/device/layout_flags.hpp"
#include "tools/mode_flags.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace tools {

struct InferFlags {
  std::string checkpoint;
  // Exactly one of the four.
  std::string prompt;
  std::string prompt_ids;
  std::string prompt_file;
  std::string batch_file;
  bool chat = false;
  bool thinking = false;
  ModeFlags mode;
  std::string device = "auto";
  int64_t max_batch = 8;
  std::string graphs = "on";
  std::string kv;
  LayoutFlags layout;
  std::string comm = "threads";
  int64_t num_micro_batches = 1;
  int num_threads = default_threads();
  std::optional<int64_t> max_new_tokens;  // absent: kDefaultNewTokens, or what the model's positions leave
  model::Sampling sampling;
  std::vector<std::string> stop;
  std::string stop_ids;
  bool ignore_eos = false;
  int64_t num_drafts = 0;
  int64_t num_logprobs = 0;
  int64_t chunk_len = 512;
  int64_t page_rows = 64;  // 0: as many as the longest sequence needs, so that each lies in one piece
  bool json = false;
  std::string stats;
  std::string routing_file;  // of --trace-routing
  std::string trace_file;    // of --trace
};

inline constexpr int64_t kDefaultNewTokens = 128;

void add_infer_options(CLI::App& app, InferFlags& flags);

}  // namespace tools
