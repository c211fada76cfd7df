#include "golden/ranks.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <regex>
#include <set>

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

class Gatherer {
 public:
  Gatherer(const RankLayout& layout, GatheredDump& result) : layout_(layout), result_(result) {}

  // Joins what the ranks hold of one op. Experts are whole at whoever holds them; their rows are of all tokens of the ranks that share
  // the experts.
  void gather(const std::string& name, const model::Op& op, const std::vector<Holding>& holdings) {
    if (op.num_parts > 1 && layout_.ep > 1) {
      std::vector<TensorView> groups;
      std::vector<int64_t> ranks;
      for (int64_t first = 0; first < layout_.stage_len(); first += layout_.ep) {
        std::vector<Holding> group;
        std::ranges::copy_if(holdings, std::back_inserter(group), [&](const Holding& h) {
          const int64_t in_stage = h.rank % layout_.stage_len();
          return first <= in_stage && in_stage < first + layout_.ep;
        });
        if (!group.empty()) {
          groups.push_back(agreed(name, group));
          ranks.push_back(group[0].rank);
        }
      }
      result_.dump.tensors[name] = join(name, groups, ranks, 0);
      return;
    }
    std::vector<TensorView> groups;
    std::vector<int64_t> group_ranks;
    const int64_t group_len = layout_.stage_len() / layout_.dp;
    for (int64_t dp_rank = 0; dp_rank < layout_.dp; ++dp_rank) {
      std::vector<Holding> group;
      std::ranges::copy_if(holdings, std::back_inserter(group), [&](const Holding& h) {
        return h.rank % layout_.stage_len() / group_len == dp_rank;
      });
      if (!group.empty()) {  // a DP rank without tokens dumps nothing
        groups.push_back(within_group(name, op, group));
        group_ranks.push_back(group[0].rank);
      }
    }
    result_.dump.tensors[name] = groups.size() == 1 ? groups[0] : join(name, groups, group_ranks, 0);
  }

 private:
  TensorView within_group(const std::string& name, const model::Op& op, const std::vector<Holding>& group) {
    const bool split = layout_.tp > 1 && model::is_cut_over_tensor_ranks(op) && group[0].tensor->shape.size() > 1 &&
                       group[0].tensor->shape[1] != op.shape[1];
    if (!split) {
      return agreed(name, group);
    }
    std::vector<TensorView> pieces;
    std::vector<int64_t> ranks;
    for (const Holding& holding : group) {
      pieces.push_back(*holding.tensor);
      ranks.push_back(holding.rank);
    }
    return join(name, pieces, ranks, 1);
  }

  TensorView join(const std::string& name,
                  const std::vector<TensorView>& pieces,
                  const std::vector<int64_t>& ranks,
                  size_t dimension) {
    RankOrigin origin{.dimension = dimension, .begins = {}, .ranks = ranks};
    std::vector<const TensorView*> pointers;
    int64_t begin = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      model::Shape expected = pieces[0].shape;
      expected[dimension] = pieces[i].shape.size() > dimension ? pieces[i].shape[dimension] : 0;
      if (pieces[i].shape != expected || pieces[i].dtype != pieces[0].dtype) {
        model::throw_input_error("{}: rank {} holds {} {}, which does not fit rank {}'s {} {}",
                                 name,
                                 ranks[i],
                                 model::dtype_name(pieces[i].dtype),
                                 model::shape_text(pieces[i].shape),
                                 ranks[0],
                                 model::dtype_name(pieces[0].dtype),
                                 model::shape_text(pieces[0].shape));
      }
      origin.begins.push_back(begin);
      begin += pieces[i].shape[dimension];
      pointers.push_back(&pieces[i]);
    }
    result_.origins[name] = std::move(origin);
    return joined(pointers, dimension);
  }

  // Replicas must agree. The rank that differs from most is named; of two, the later one.
  TensorView agreed(const std::string& name, const std::vector<Holding>& holdings) {
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
        result_.disagreements.emplace(name, holding.rank);
      }
    }
    return *holdings[best].tensor;
  }

  const RankLayout& layout_;
  GatheredDump& result_;
};

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
                          const std::vector<Case>& cases) {
  CHECK_EQ(static_cast<int64_t>(ranks.size()), layout.world_size());
  std::map<std::string, std::vector<Holding>> holdings;
  GatheredDump result;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const auto& [name, tensor] : ranks[rank].tensors) {
      holdings[name].push_back({static_cast<int64_t>(rank), &tensor});
    }
    result.dump.unused.insert(result.dump.unused.end(), ranks[rank].unused.begin(), ranks[rank].unused.end());
  }
  Gatherer gatherer(layout, result);
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
      op.rank = replica->second;
      if (!op.divergence) {
        op.divergence = Divergence{.op = op.op, .case_name = op.case_name};
      }
      op.divergence->reason = fmt::format("rank {} holds other values than the other replicas", replica->second);
    } else if (const auto found = gathered.origins.find(name); found != gathered.origins.end() && op.divergence) {
      const RankOrigin& origin = found->second;
      const auto& coordinate = op.divergence->coordinate;
      const int64_t index = coordinate.size() > origin.dimension ? coordinate[origin.dimension] : 0;
      const auto after = std::ranges::upper_bound(origin.begins, index);
      op.rank = origin.ranks[static_cast<size_t>(after - origin.begins.begin()) - 1];
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
