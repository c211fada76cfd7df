// The whole measured sets, which lie beside the repository: no mismatch, and a step changed by one is refused.
#include <gtest/gtest.h>

#include "tests/reference/tensor_core_vectors.hpp"
#include "tests/shared_data.hpp"

namespace reference::tensor_core {
namespace {

class TensorCoreOracle : public testing::TestWithParam<NamedSet> {};

TEST_P(TensorCoreOracle, WholeSet_AgreesAndChangedStepsDoNot) {
  const auto file = shared_data("oracle/tensor-core/" + GetParam().file);
  if (!file) {
    GTEST_SKIP() << "no measured vectors beside the repository";
  }
  const VectorSet set = read_vectors(file->string(), GetParam().format);
  EXPECT_EQ(set.rows.size(), 5000u);
  const Path& path = path_of(GetParam());
  EXPECT_EQ(check_path(set, path).num_mismatches, 0);
  for (const auto& [name, changed] : changed_steps(path)) {
    EXPECT_GT(check_path(set, changed).num_mismatches, 0) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, TensorCoreOracle, testing::ValuesIn(kMeasuredSets), set_name);

}  // namespace
}  // namespace reference::tensor_core
