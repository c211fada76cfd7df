// From a request to an op pack.
#pragma once

#include "tools/op_pack/bench.hpp"

namespace tools::op_pack {

// Throws InputError: an unknown kind, shape key, mode or variant, a size that fits nothing, a checkpoint without that weight.
OpPack make_pack(const PackRequest& request);

}  // namespace tools::op_pack
