// Collectives, dispatch and combine, timed over one way of connecting ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpu/comm/communicator.hpp"

namespace tools {

struct LinksFlags {
  std::string comm = "threads";
  int num_ranks = 4;
  std::vector<std::string> collectives;
  int64_t min_bytes = 1 << 10;
  int64_t max_bytes = 4 << 20;
  std::vector<int64_t> tokens{1, 32, 128};
  double min_time_s = 0.05;
  int num_repetitions = 5;
  bool json = false;
  std::string out;
};

// One line of the table. Bandwidths as nccl-tests defines them: algorithm bandwidth is bytes / time; bus bandwidth is what each link has
// to carry at least, to be held against the link's own.
struct LinksRow {
  std::string collective;
  int64_t num_bytes = 0;  // all-reduce, broadcast, send: of the buffer; the others: of all ranks' buffers together
  int64_t count = 0;
  std::string type;
  int64_t sent_bytes = 0;  // by the first rank to others
  int64_t num_tokens = 0;  // of dispatch and combine, a rank's
  double time_us = 0;
  double time_us_p10 = 0;
  double time_us_p90 = 0;
  double bus_factor = 1;
};

// What a rank works with.
struct LinkRank {
  gpu::comm::Communicator& host;                // by which ranks agree on what to measure
  gpu::comm::Communicator& links;               // what is measured; the same, unless its buffers are a GPU's
  std::function<std::byte*(int64_t)> allocate;  // memory that links can use, as long as the rank runs
  std::function<void()> finish;                 // returns when what was called is done
  std::string gpu = {};  // whose memory that is; none: the host's, where dispatch and combine read counts
};

// Of every size, or of every number of tokens, what flags ask for; every rank calls them together.
std::vector<LinksRow> time_collectives(const LinkRank& rank, const LinksFlags& flags);
std::vector<LinksRow> time_experts(const LinkRank& rank, const LinksFlags& flags);

// Ranks that each have a GPU, as threads of this process: link_ranks_nccl.cpp, or, in a program built without it, link_ranks_no_nccl.cpp,
// which throws InputError. Throws CommError with NCCL's words. Never run on GPUs so far.
void run_nccl_ranks(int num_ranks,
                    const std::function<void(const LinkRank&)>& body,
                    const std::function<void(int rank, const std::string& what)>& on_failure);

}  // namespace tools
