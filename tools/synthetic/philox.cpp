#include "tools/synthetic/philox.hpp"

#include <xxhash.h>

namespace tools::synthetic {
namespace {

uint32_t low(uint64_t value) {
  return static_cast<uint32_t>(value);
}

uint32_t high(uint64_t value) {
  return static_cast<uint32_t>(value >> 32);
}

}  // namespace

Draws::Draws(uint64_t seed, std::string_view name)
    : key_{low(seed), high(seed)}, name_hash_(XXH3_64bits(name.data(), name.size())) {}

void Draws::make_block(int64_t block_idx) {
  const auto count = static_cast<uint64_t>(block_idx);
  block_ = philox4x32({low(count), high(count), low(name_hash_), high(name_hash_)}, key_);
  block_idx_ = block_idx;
}

}  // namespace tools::synthetic
