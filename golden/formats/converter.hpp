// Applies a name table to the tensors of one case after another.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "golden/formats/case_ops.hpp"
#include "golden/formats/name_table.hpp"

namespace golden {

// "layers.3.ffn.experts.12.w1" is pattern "layers.#.ffn.experts.#.w1" with numbers 3, 12. The place in a
// list stays: "model.layers.3[1]" is "model.layers.#[1]".
struct SplitName {
  std::string pattern = {};
  std::vector<std::string> numbers = {};
};
SplitName split_numbers(std::string_view name);

// The tensors of one case: pattern -> numbers -> (name in the dump, tensor).
using NamedTensor = std::pair<std::string, model::TensorView>;
using CaseTensors = std::map<std::string, std::map<std::vector<std::string>, NamedTensor>>;

class Converter {
 public:
  // `path` begins the messages. Shapes of a shard are not held against the ops.
  Converter(const NameMap& map,
            const model::ModelConfig& config,
            const std::vector<Case>& cases,
            std::string path,
            bool is_shard)
      : map_(map), config_(config), cases_(cases), path_(std::move(path)), is_shard_(is_shard) {}

  // Throws InputError when a tensor of a known name has an impossible shape or dtype.
  void convert(const Case& which, const CaseTensors& tensors);

  [[nodiscard]] const std::map<std::string, model::TensorView>& converted() const { return converted_; }
  [[nodiscard]] const std::set<std::string>& used() const { return used_; }  // names in the dump

 private:
  // What all rows of one case share.
  struct CaseView {
    const Case& which;
    const CaseOps& ops;
    const CaseTensors& tensors;
    std::vector<int64_t> kept_rows = {};  // of the padded tokens
    int64_t num_padded = 0;               // tokens with padding; 0: not known, or there is none
  };

  void find_padding(CaseView& view);
  void convert_one(const CaseView& view,
                   const NameRow& row,
                   const std::vector<std::string>& numbers,
                   const NamedTensor& first);
  void convert_experts(const CaseView& view,
                       const NameRow& row,
                       const std::vector<std::string>& numbers,
                       const NamedTensor& first);
  [[nodiscard]] model::TensorView sliced(const NameRow& row,
                                         const model::TensorView& tensor,
                                         const std::string& origin) const;
  [[nodiscard]] model::TensorView without_padding(const CaseView& view, const model::TensorView& tensor) const;
  [[nodiscard]] std::string origin_of(const std::string& name) const;

  const NameMap& map_;
  const model::ModelConfig& config_;
  const std::vector<Case>& cases_;
  std::string path_;
  bool is_shard_;
  std::map<std::string, model::TensorView> converted_;
  std::set<std::string> used_;
};

}  // namespace golden
