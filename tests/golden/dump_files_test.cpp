// Names of files as engines and people give them, and what step and name they mean.
#include "golden/dump_files.hpp"

#include <gtest/gtest.h>

#include <map>

#include "tests/golden/hand_written.hpp"
#include "tests/golden/torch_fixture.hpp"
#include "tests/model/hostile.hpp"

namespace {

using hand_written::counting;
using torch_fixture::raw;

// A directory of files, and the step and name of each tensor in it.
class DumpFiles : public testing::Test {
 protected:
  void add(const std::string& name, const std::string& bytes) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    write_bytes(folder_ / name, bytes);
  }
  void add_value(const std::string& name) { add(name, torch_fixture::value_file(counting({2, 2}))); }

  [[nodiscard]] std::vector<std::string> found() const {
    std::vector<std::string> result;
    for (const golden::DumpTensor& tensor : golden::read_dump_files(folder_.path())) {
      result.push_back(tensor.step + "/" + tensor.name);
    }
    return result;
  }

  TempDir folder_;
};

using Names = std::vector<std::string>;

TEST_F(DumpFiles, TheDumpersKeysComeInAnyOrderAndInTheOrderOfTheirIndex) {
  add_value("run/name=q_a___step=3___rank=0___dump_index=10___layer_id=5.pt");
  add_value("run/forward_pass_id=1___rank=0___name=embed___dump_index=9.pt");
  EXPECT_EQ(found(), (Names{"1/embed", "3/layers.5.q_a"}));
}

TEST_F(DumpFiles, HookedModulesLoseWhatTheDumperAdds) {
  const std::string prefix = "step=0___rank=0___recompute_status=disabled___layer_id=1___dump_index=";
  add_value(prefix + "1___name=non_intrusive__model.layers.1.self_attn.o_proj.inputs.0.pt");
  add_value(prefix + "2___name=non_intrusive__model.layers.1.self_attn.o_proj.output.pt");
  add_value(prefix + "3___name=non_intrusive__model.layers.1.output.1.pt");
  EXPECT_EQ(
      found(),
      (Names{"0/model.layers.1.self_attn.o_proj.in[0]", "0/model.layers.1.self_attn.o_proj", "0/model.layers.1[1]"}));
}

TEST_F(DumpFiles, AValueMayBeAloneInItsFile) {
  add("name=q___step=2___rank=0___dump_index=1.pt",
      torch_fixture::torch_file(torch_fixture::tensor({.storage_len = 2, .shape = {2}, .strides = {1}}),
                                {{"0", std::string(8, '\0')}}));
  EXPECT_EQ(found(), Names{"2/q"});
}

TEST_F(DumpFiles, TheForwardHookWritesTheHeadOnePassLate) {
  add("TP0_PP0_Rank0_pid77/Pass00000.pt", torch_fixture::torch_file({{"model.norm", counting({1, 2})}}));
  add("TP0_PP0_Rank0_pid77/Pass00001.pt",
      torch_fixture::torch_file({{"logits_processor", counting({1, 2})}, {"model.norm", counting({1, 2})}}));
  EXPECT_EQ(found(), (Names{"0/model.norm", "0/logits_processor", "1/model.norm"}));
}

TEST_F(DumpFiles, ACaseInANameGoesBeforeThePass) {
  add("Pass00002.pt", torch_fixture::torch_file({{"p2/embed", counting({1, 2})}}));
  EXPECT_EQ(found(), Names{"p2/embed"});
}

TEST_F(DumpFiles, PlainFilesSayTheCaseInTheirName) {
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1), }\n";
  const std::string npy = std::string("\x93NUMPY\x01") + std::string(1, '\0') +
                          raw(static_cast<uint16_t>(header.size())) + header + raw(1.0F);
  add("p2/embed.npy", npy);
  add("p7__layer.0.output.npy", npy);
  add("step_04.pt", torch_fixture::torch_file({{"model.norm", counting({1, 2})}}));
  add("notes.txt", "left alone");
  model::write_safetensors(folder_ / "z.safetensors", {{"d0/embed", counting({1, 2})}, {"norm", counting({1})}}, {});
  EXPECT_EQ(found(), (Names{"p2/embed", "p7/layer.0.output", "4/model.norm", "d0/embed", "z/norm"}));
}

TEST_F(DumpFiles, SeveralRanksAreRefused) {
  add_value("name=q___step=3___rank=0___dump_index=1.pt");
  add_value("name=q___step=3___rank=1___dump_index=1.pt");
  expect_fragment(refusal_of([&] { static_cast<void>(found()); }), "files of rank 0 and of rank 1");
}

TEST_F(DumpFiles, NothingToReadIsRefused) {
  add("notes.txt", "left alone");
  expect_fragment(refusal_of([&] { static_cast<void>(found()); }),
                  "expected a directory with .pt, .npy or .safetensors files");
}

}  // namespace
