// A model whose 128-blocks stay whole under TP 2..8 and EP 2..16, small enough to plan in no time: synthetic:par, with room for
// longer sequences.
#pragma once

#include "tools/synthetic/fixtures.hpp"

namespace simulator {

inline model::ModelConfig small_config() {
  auto config = tools::synthetic::find_fixture("par")->config;
  config.max_position_embeddings = 4096;
  return config;
}

}  // namespace simulator
