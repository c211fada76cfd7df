// Which ops may be recomputed together when the tensors between them are missing from a dump.
// docs/contracts.md: a run stays inside one block: norm + quantise + linear; attention core; router; one MLP or expert; the
// routed experts with combine and shared add; the residual additions.
#pragma once

#include <string>
#include <vector>

#include "model/op_list.hpp"

namespace golden {

// Names of the blocks an op belongs to (most specific first). Two ops may be in one run iff they share a block.
std::vector<std::string> blocks_of(const model::Op& op);

// True if no dump needs to hold this op: it is optional, or the MTP's embedding, which the op table does not list.
bool may_be_absent(const model::Op& op);

}  // namespace golden
