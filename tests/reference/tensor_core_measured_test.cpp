// Sixty rows of each measured set (data/tensor_core/README.md): the recipe gives every bit, a step changed by one does not.
#include <gtest/gtest.h>

#include "tests/paths.hpp"
#include "tests/reference/tensor_core_vectors.hpp"

namespace reference::tensor_core {
namespace {

class TensorCoreMeasured : public testing::TestWithParam<NamedSet> {
 protected:
  [[nodiscard]] VectorSet read() const {
    const std::string folder = (source_dir() / "tests/reference/data/tensor_core/").string();
    return read_vectors(folder + GetParam().file, GetParam().format);
  }
};

TEST_P(TensorCoreMeasured, Recipe_GivesEveryBit) {
  const VectorSet set = read();
  EXPECT_EQ(set.rows.size(), 60u);
  EXPECT_EQ(check_path(set, path_of(GetParam())).num_mismatches, 0);
}

TEST_P(TensorCoreMeasured, ChangedStep_IsRefused) {
  const VectorSet set = read();
  for (const auto& [name, path] : changed_steps(path_of(GetParam()))) {
    EXPECT_GT(check_path(set, path).num_mismatches, 0) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, TensorCoreMeasured, testing::ValuesIn(kMeasuredSets), set_name);

}  // namespace
}  // namespace reference::tensor_core
