// A dump of many ranks put together: shards joined, replicas held against each other, and who held what remembered.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "golden/formats.hpp"
#include "golden/verdict.hpp"
#include "model/config.hpp"
#include "model/op_list.hpp"

namespace golden {

// "tp8", "ep8", "dp8ep8", "tp4dp2ep8", "tp2pp2". World size is pp stages of tp * dp ranks, or ep where that is larger; in a stage
// rank = dp_rank * (stage / dp) + rest.
// A DP rank holds its share of the tokens, in rank order; a TP rank its heads and columns; an EP rank its experts; everything else is a
// replica. Numbers in any order, each at most once.
struct RankLayout {
  int64_t tp = 1;
  int64_t ep = 1;
  int64_t dp = 1;
  int64_t pp = 1;

  [[nodiscard]] int64_t stage_len() const;
  [[nodiscard]] int64_t world_size() const;
};

// Throws InputError naming the text and what was expected.
RankLayout parse_rank_layout(std::string_view text);

// The dump of each rank, in our names: a directory with one file a rank (rank0.safetensors) or many (SGLang's dumper), told apart as
// golden/dump_files.hpp says. Throws InputError when a rank is missing or too large for the layout.
std::vector<Dump> read_ranks(const std::filesystem::path& directory,
                             const RankLayout& layout,
                             std::string_view format,
                             const model::ModelConfig& config,
                             const std::vector<Case>& cases);

// A piece of a joined tensor: where it begins along the first two dimensions, and who held it.
struct RankPiece {
  int64_t first_row = 0;
  int64_t first_column = 0;
  int64_t rank = 0;
};

// What ranks hold that cannot all be right, and who is to blame.
struct RankDisagreement {
  int64_t rank = 0;
  std::string reason = {};
};

struct GatheredDump {
  Dump dump;
  std::map<std::string, std::vector<RankPiece>> origins;  // "<case>/<op>" of joined tensors and of experts
  // Replicas that differ: the rank that stands alone (or comes later). Rows that a rank has too few or too many of.
  std::map<std::string, RankDisagreement> disagreements;
};

// The rank of a stage that has each row of a tensor ("<case>/<op>"; an expert's part finds its grouped op), where ranks have rows as no
// layout says. Empty: as the layout says.
using RowOwners = std::function<std::vector<int64_t>(const std::string& name, const model::Op& op)>;

// `ranks`: the dump of each rank in our names. Throws InputError when shards do not add up to the op's shape.
GatheredDump gather_ranks(const RankLayout& layout,
                          const std::vector<Dump>& ranks,
                          const model::ModelConfig& config,
                          const std::vector<Case>& cases,
                          const RowOwners& row_owners = {});

// Names the rank in every result: of the worst element of a diverged op, and of a disagreement, which makes its op diverge.
void assign_ranks(const GatheredDump& gathered, Verdict& verdict);

}  // namespace golden
