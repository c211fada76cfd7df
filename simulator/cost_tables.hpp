// Model accounting as tables: everything that follows from sizes, with no measurement in it.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/described_model.hpp"
#include "simulator/table.hpp"

namespace simulator {

struct CostOptions {
  std::vector<int64_t> batches{1, 8, 32, 64, 128, 512};                    // tokens
  std::vector<int64_t> eps{1, 8, 16, 32, 48, 64, 72, 128, 144, 256, 320};  // expert-parallel sizes
  std::vector<int64_t> contexts{4096, 32768, 131072};                      // tokens
  int64_t gpus_per_node = 8;
  double ib_gb_per_s = 50;       // each GPU, one direction: a 400 Gb/s NIC
  double nvlink_gb_per_s = 450;  // each GPU, one direction: H100, H200
  std::vector<int64_t> load{};   // token copies of each expert; empty: no capacity table
  double capacity_factor = 1.25;
};

// Throws InputError for an option that is out of range or does not fit the model.
std::vector<Table> cost_tables(const DescribedModel& described, const CostOptions& options);

}  // namespace simulator
