// What a sum over ranks is: one function for every back end that gathers and adds, so that they give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/comm/communicator.hpp"
#include "gpu/comm/transport.hpp"

namespace gpu::comm {

// `sum`: `count` elements, of parts[0] + parts[1] + ... in that order; each part holds as many. BF16 and FP16 are added in FP32 and
// rounded once, to nearest even; kI32 wraps around. Not for kByte. No address needs to be aligned; `sum` overlaps no part.
void sum_in_rank_order(const Parts& parts, std::byte* sum, int64_t count, Element element);

}  // namespace gpu::comm
