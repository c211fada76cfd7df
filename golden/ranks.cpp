#include "golden/ranks.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <regex>
#include <set>
#include <utility>

#include "golden/dump_files.hpp"
#include "model/op_list.hpp"
#include "model/parallel_plan.hpp"

namespace golden {
namespace {

using model::TensorView;

// The op a tensor of a dump belongs to; a part of a grouped op finds the group.
const model::Op* find_op(const std::map<std::string, model::Op>& ops, const std::string& id) {
  if (const auto found = ops.find(id); found != ops.end()) {
    return &found->second;
  }
  static const std::regex kExpert(R"(\.expert\.\d+)");
  const auto found = ops.find(std::regex_replace(id, kExpert, ".expert.*"));
  return found == ops.end() ? nullptr : &found->second;
}

std::map<std::string, model::Op> ops_of(const model::ModelConfig& config,
                                        const std::vector<Case>& cases,
                                        const Case& step) {
  model::Workload workload{.sequences = sequence_steps(cases, step), .num_mtp_layers = config.num_nextn_predict_layers};
  std::map<std::string, model::Op> ops;
  for (const auto form : {model::AttentionForm::kExpanded, model::AttentionForm::kAbsorbed}) {
    workload.attention_form = form;
    for (model::Op& op : model::op_list(config, workload)) {
      ops.emplace(op.id, std::move(op));
    }
  }
  return ops;
}

bool same_bits(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape && std::ranges::equal(a.bytes, b.bytes);
}

// Pieces joined along a dimension; all others equal.
TensorView joined(const std::vector<const TensorView*>& pieces, size_t dimension) {
  model::Shape shape = pieces[0]->shape;
  shape[dimension] = 0;
  size_t num_outer = 1;
  for (size_t d = 0; d < dimension; ++d) {
    num_outer *= static_cast<size_t>(shape[d]);
  }
  for (const TensorView* piece : pieces) {
    shape[dimension] += piece->shape[dimension];
  }
  auto bytes = std::make_shared<std::vector<std::byte>>();
  for (size_t outer = 0; outer < num_outer; ++outer) {
    for (const TensorView* piece : pieces) {
      const size_t block = piece->bytes.size() / num_outer;
      const auto part = piece->bytes.subspan(outer * block, block);
      bytes->insert(bytes->end(), part.begin(), part.end());
    }
  }
  return {pieces[0]->dtype, std::move(shape), *bytes, bytes};
}

// One tensor as the ranks hold it.
struct Holding {
  int64_t rank = 0;
  const TensorView* tensor = nullptr;
};

// Of one tensor, what some ranks hold put together.
struct Joined {
  TensorView tensor;
  std::vector<RankPiece> pieces;
};

class Gatherer {
 public:
  Gatherer(const RankLayout& layout, const RowOwners& row_owners, GatheredDump& result)
      : layout_(layout), row_owners_(row_owners), result_(result) {}

  // Joins what the ranks hold of one op. Experts are whole at whoever holds them, or cut like what tensor-parallel ranks share; the rows
  // of whole ones are of all tokens of the ranks that share the experts.
  void gather(const std::string& name, const model::Op& op, const std::vector<Holding>& holdings) {
    const auto owners = row_owners_ ? row_owners_(name, op) : std::vector<int64_t>();
    const bool is_expert = op.num_parts > 1 && layout_.ep > 1 && layout_.ep >= layout_.tp;
    const auto result = !owners.empty() ? by_rows(name, owners, holdings)
                        : is_expert     ? by_groups(name, op, holdings, layout_.ep, true)
                                        : by_groups(name, op, holdings, layout_.stage_len() / layout_.dp, false);
    result_.dump.tensors[name] = result.tensor;
    if (result.pieces.size() > 1 || is_expert) {
      result_.origins[name] = result.pieces;
    }
  }

 private:
  // Groups of ranks of a stage have rows of their own. One without tokens dumps nothing.
  Joined by_groups(const std::string& name,
                   const model::Op& op,
                   const std::vector<Holding>& holdings,
                   int64_t group_len,
                   bool is_expert) {
    std::vector<Joined> groups;
    for (int64_t first = 0; first < layout_.stage_len(); first += group_len) {
      std::vector<Holding> group;
      std::ranges::copy_if(holdings, std::back_inserter(group), [&](const Holding& h) {
        const int64_t in_stage = h.rank % layout_.stage_len();
        return first <= in_stage && in_stage < first + group_len;
      });
      if (!group.empty()) {
        groups.push_back(is_expert ? agreed(name, group) : within_group(name, op, group));
      }
    }
    return join(name, groups, 0);
  }

  Joined within_group(const std::string& name, const model::Op& op, const std::vector<Holding>& group) {
    const bool split = layout_.tp > 1 && model::is_cut_over_tensor_ranks(op) && group[0].tensor->shape.size() > 1 &&
                       group[0].tensor->shape[1] != op.shape[1];
    if (!split) {
      return agreed(name, group);
    }
    std::vector<Joined> pieces;
    for (const Holding& holding : group) {
      pieces.push_back({*holding.tensor, {{.rank = holding.rank}}});
    }
    return join(name, pieces, 1);
  }

  Joined join(const std::string& name, const std::vector<Joined>& parts, size_t dimension) {
    if (parts.size() == 1) {
      return parts[0];
    }
    std::vector<RankPiece> pieces;
    std::vector<const TensorView*> pointers;
    int64_t begin = 0;
    for (const Joined& part : parts) {
      const model::Shape& shape = part.tensor.shape;
      model::Shape expected = parts[0].tensor.shape;
      expected[dimension] = shape.size() > dimension ? shape[dimension] : 0;
      if (shape != expected || part.tensor.dtype != parts[0].tensor.dtype) {
        model::throw_input_error("{}: rank {} holds {} {}, which does not fit rank {}'s {} {}",
                                 name,
                                 part.pieces[0].rank,
                                 model::dtype_name(part.tensor.dtype),
                                 model::shape_text(shape),
                                 parts[0].pieces[0].rank,
                                 model::dtype_name(parts[0].tensor.dtype),
                                 model::shape_text(parts[0].tensor.shape));
      }
      for (RankPiece piece : part.pieces) {
        (dimension == 0 ? piece.first_row : piece.first_column) += begin;
        pieces.push_back(piece);
      }
      begin += shape[dimension];
      pointers.push_back(&part.tensor);
    }
    return {joined(pointers, dimension), std::move(pieces)};
  }

  // Each row from its owner, who has its own in this order. A row that the owner does not have is zero.
  Joined by_rows(const std::string& name, const std::vector<int64_t>& owners, const std::vector<Holding>& holdings) {
    std::map<int64_t, Holding> holding_of;  // by rank in the stage
    std::map<int64_t, int64_t> num_taken;
    for (const Holding& holding : holdings) {
      holding_of[holding.rank % layout_.stage_len()] = holding;
    }
    const TensorView& first =
        *std::ranges::max_element(holdings, {}, [](const Holding& h) { return h.tensor->shape[0]; })->tensor;
    const size_t row_bytes = first.shape[0] == 0 ? 0 : first.bytes.size() / static_cast<size_t>(first.shape[0]);
    auto bytes = std::make_shared<std::vector<std::byte>>();
    std::vector<RankPiece> pieces;
    for (const int64_t owner : owners) {
      const int64_t row = num_taken[owner]++;
      const auto found = holding_of.find(owner);
      const bool has_row = found != holding_of.end() && row < found->second.tensor->shape[0];
      pieces.push_back({.first_row = static_cast<int64_t>(pieces.size()),
                        .rank = found != holding_of.end() ? found->second.rank : owner});
      if (has_row) {
        const auto part = found->second.tensor->bytes.subspan(static_cast<size_t>(row) * row_bytes, row_bytes);
        bytes->insert(bytes->end(), part.begin(), part.end());
      } else {
        bytes->resize(bytes->size() + row_bytes);
        disagree(name, pieces.back().rank, "lacks a row that the routing gives it");
      }
    }
    for (const auto& [rank, holding] : holding_of) {
      if (holding.tensor->shape[0] > num_taken[rank]) {
        disagree(name, holding.rank, "holds a row that the routing gives to others");
      }
    }
    model::Shape shape = first.shape;
    shape[0] = static_cast<int64_t>(owners.size());
    return {{first.dtype, std::move(shape), *bytes, bytes}, std::move(pieces)};
  }

  // Replicas must agree. The rank that differs from most is named; of two, the later one.
  Joined agreed(const std::string& name, const std::vector<Holding>& holdings) {
    size_t best = 0;
    int64_t most = 0;
    for (size_t i = 0; i < holdings.size(); ++i) {
      const auto count = std::ranges::count_if(
          holdings, [&](const Holding& other) { return same_bits(*other.tensor, *holdings[i].tensor); });
      if (count > most) {
        most = count;
        best = i;
      }
    }
    for (const Holding& holding : holdings) {
      if (!same_bits(*holding.tensor, *holdings[best].tensor)) {
        disagree(name, holding.rank, "holds other values than the other replicas");
      }
    }
    return {*holdings[best].tensor, {{.rank = holdings[0].rank}}};
  }

  void disagree(const std::string& name, int64_t rank, const std::string& what) {
    result_.disagreements.emplace(name, RankDisagreement{rank, fmt::format("rank {} {}", rank, what)});
  }

  const RankLayout& layout_;
  const RowOwners& row_owners_;
  GatheredDump& result_;
};

// The piece that an element lies in.
int64_t rank_of(const std::vector<RankPiece>& pieces, const model::Shape& coordinate) {
  const int64_t row = !coordinate.empty() ? coordinate[0] : 0;
  const int64_t column = coordinate.size() > 1 ? coordinate[1] : 0;
  const RankPiece* last = &pieces[0];
  for (const RankPiece& piece : pieces) {
    if (piece.first_row <= row && piece.first_column <= column &&
        std::pair(piece.first_row, piece.first_column) >= std::pair(last->first_row, last->first_column)) {
      last = &piece;
    }
  }
  return last->rank;
}

}  // namespace

int64_t RankLayout::stage_len() const {
  return std::max(tp * dp, ep);
}

int64_t RankLayout::world_size() const {
  return stage_len() * pp;
}

RankLayout parse_rank_layout(std::string_view text) {
  static const std::regex kPart(R"((tp|ep|dp|pp)(\d{1,5}))");
  const std::string whole(text);
  RankLayout layout;
  std::set<std::string> seen;
  size_t matched = 0;
  for (auto part = std::sregex_iterator(whole.begin(), whole.end(), kPart); part != std::sregex_iterator(); ++part) {
    const int64_t degree = std::stoll((*part)[2].str());
    const std::string axis = (*part)[1].str();
    int64_t& target = axis == "tp" ? layout.tp : axis == "ep" ? layout.ep : axis == "dp" ? layout.dp : layout.pp;
    target = degree;
    matched += part->str().size();
    if (degree < 1 || !seen.insert(axis).second) {
      matched = 0;
      break;
    }
  }
  if (matched != whole.size() || whole.empty() || layout.stage_len() % layout.dp != 0) {
    model::throw_input_error("--layout {}: expected degrees such as tp8, ep8, dp8ep8 or tp4dp2ep8", text);
  }
  return layout;
}

std::vector<Dump> read_ranks(const std::filesystem::path& directory,
                             const RankLayout& layout,
                             std::string_view format,
                             const model::ModelConfig& config,
                             const std::vector<Case>& cases) {
  if (!std::filesystem::is_directory(directory)) {
    model::throw_input_error("{}: with --layout a directory with the files of all ranks is expected",
                             directory.string());
  }
  const auto found = ranks_of_files(directory);
  const int64_t world = layout.world_size();
  if (!found.empty() && *found.rbegin() >= world) {
    model::throw_input_error(
        "{}: files of rank {}, the layout has {} ranks", directory.string(), *found.rbegin(), world);
  }
  std::vector<Dump> ranks;
  for (int64_t rank = 0; rank < world; ++rank) {
    if (!found.contains(rank)) {
      model::throw_input_error("{}: no file of rank {} (names hold \"rank{}\"), the layout has {} ranks",
                               directory.string(),
                               rank,
                               rank,
                               world);
    }
    ranks.push_back(read_dump(directory, format, config, cases, rank));
  }
  return ranks;
}

GatheredDump gather_ranks(const RankLayout& layout,
                          const std::vector<Dump>& ranks,
                          const model::ModelConfig& config,
                          const std::vector<Case>& cases,
                          const RowOwners& row_owners) {
  CHECK_EQ(static_cast<int64_t>(ranks.size()), layout.world_size());
  std::map<std::string, std::vector<Holding>> holdings;
  GatheredDump result;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const auto& [name, tensor] : ranks[rank].tensors) {
      holdings[name].push_back({static_cast<int64_t>(rank), &tensor});
    }
    result.dump.unused.insert(result.dump.unused.end(), ranks[rank].unused.begin(), ranks[rank].unused.end());
  }
  Gatherer gatherer(layout, row_owners, result);
  for (const Case& step : cases) {
    const auto ops = ops_of(config, cases, step);
    for (const auto& [name, held] : holdings) {
      if (!name.starts_with(step.name + "/")) {
        continue;
      }
      if (const auto* op = find_op(ops, name.substr(step.name.size() + 1)); op != nullptr) {
        gatherer.gather(name, *op, held);
      } else {
        result.dump.unused.push_back(name);
      }
    }
  }
  return result;
}

void assign_ranks(const GatheredDump& gathered, Verdict& verdict) {
  for (OpResult& op : verdict.ops) {
    const std::string name = op.case_name + "/" + op.op;
    if (const auto replica = gathered.disagreements.find(name); replica != gathered.disagreements.end()) {
      op.status = OpStatus::kDiverged;
      op.rank = replica->second.rank;
      if (!op.divergence) {
        op.divergence = Divergence{.op = op.op, .case_name = op.case_name};
      }
      op.divergence->reason = replica->second.reason;
    } else if (const auto found = gathered.origins.find(name); found != gathered.origins.end() && op.divergence) {
      op.rank = rank_of(found->second, op.divergence->coordinate);
    }
    if (op.divergence) {
      op.divergence->rank = op.rank;
    }
  }
  if (std::ranges::any_of(verdict.ops, [](const OpResult& op) { return op.status == OpStatus::kDiverged; })) {
    verdict.outcome = Verdict::Outcome::kFail;
  }
}

}  // namespace golden
