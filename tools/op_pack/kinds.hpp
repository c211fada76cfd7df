// The kinds of op packs: their sizes and who makes them.
#pragma once

#include <set>
#include <string_view>
#include <vector>

#include "tools/op_pack/bench.hpp"

namespace tools::op_pack {

struct ShapeKey {
  std::string_view name;
  std::string_view usual;  // what it is unless stated
  std::string_view meaning;
  bool is_list = false;
  bool of_checkpoint = false;  // a checkpoint decides it
};

struct Kind {
  std::string_view name;
  std::string_view summary;
  std::vector<ShapeKey> keys;
  std::set<model::OpKind> ops;  // what it runs: these decide which rule variants there are
  std::string_view usual_op;    // of the layer whose weight is taken; empty: the kind has no weight to name
  std::string_view example;     // a small shape
  OpPack (*make)(Bench& bench);
};

const std::vector<Kind>& all_kinds();
// Throws InputError listing the known ones.
const Kind& find_kind(const std::string& name);

OpPack make_linear(Bench& bench);
OpPack make_grouped_linear(Bench& bench);
OpPack make_rms_norm(Bench& bench);
OpPack make_mla_prefill(Bench& bench);
OpPack make_mla_decode(Bench& bench);
OpPack make_router(Bench& bench);
OpPack make_swiglu_quant(Bench& bench);
OpPack make_act_quant(Bench& bench);
OpPack make_combine(Bench& bench);

// The op of the request's layer in the checkpoint's list. Throws InputError naming those of that kind that the layer has.
model::Op checkpoint_op(const Bench& bench, model::OpKind kind, bool grouped);
// Fetches the weight (and its scales) as weight `as`; random ones without a checkpoint.
void put_linear_weight(Bench& bench, const std::string& as, const std::string& name, const model::Shape& shape);

}  // namespace tools::op_pack
