// Files of numpy.save: bytes written by numpy 2.4 (headers as it prints them), and refusals.
#include "golden/npy_file.hpp"

#include <gtest/gtest.h>

#include "tests/golden/torch_fixture.hpp"
#include "tests/model/hostile.hpp"
#include "tests/temp_dir.hpp"

namespace {

using model::Shape;
using torch_fixture::raw;

std::string npy(const std::string& header, const std::string& data, char version = 1) {
  const auto length = static_cast<uint32_t>(header.size());
  return std::string("\x93NUMPY") + version + '\0' + (version == 1 ? raw(static_cast<uint16_t>(length)) : raw(length)) +
         header + data;
}

model::TensorView read(const std::string& bytes) {
  const TempDir folder;
  write_bytes(folder / "x.npy", bytes);
  return golden::read_npy(folder / "x.npy");
}

std::string header(const std::string& descr, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }   \n";
}

TEST(NpyFile, BothVersionsGiveShapeAndValues) {
  const std::string data = raw(1.0F) + raw(-2.5F);
  for (const char version : {1, 2}) {
    const auto tensor = read(npy(header("<f4", "(2, 1)"), data, version));
    EXPECT_EQ(tensor.shape, (Shape{2, 1}));
    EXPECT_EQ(model::to_double(tensor), (std::vector<double>{1, -2.5}));
  }
  EXPECT_EQ(read(npy(header("<f8", "()"), raw(3.5))).shape, Shape{});
  EXPECT_EQ(read(npy(header("<f4", "(2,)"), data)).shape, Shape{2});
  EXPECT_EQ(read(npy(header("<i8", "(0, 4)"), "")).shape, (Shape{0, 4}));
  EXPECT_EQ(read(npy(header("<f2", "(1,)"), raw<uint16_t>(0x3C00))).dtype, model::DType::kF16);
  EXPECT_EQ(read(npy(header("<i4", "(1,)"), raw<int32_t>(-1))).codes<int32_t>()[0], -1);
  EXPECT_EQ(read(npy(header("|u1", "(1,)"), "\x07")).codes<uint8_t>()[0], 7);
}

TEST(NpyFile, OtherFilesAreRefused) {
  const auto refusal = [](const std::string& bytes) { return refusal_of([&] { read(bytes); }); };
  expect_fragment(refusal(npy(header("<f4", "(1, 1)", "True"), raw(1.0F))), "Fortran order");
  expect_fragment(refusal(npy(header(">f4", "(1,)"), raw(1.0F))), "dtype >f4");
  expect_fragment(refusal(npy(header("|O", "(1,)"), "x")), "dtype |O");
  expect_fragment(refusal(npy(header("<f4", "(2,)"), raw(1.0F))), "needs another size");
  expect_fragment(refusal(npy(header("<f4", "(1,)"), raw(1.0F) + "x")), "needs another size");
  expect_fragment(refusal(npy(header("<f4", "(4294967296, 4294967296)"), "")), "impossible extent");
  expect_fragment(refusal(npy(header("<f4", "(99999999999999999999,)"), "")), "impossible extent");
  expect_fragment(refusal(npy("{'shape': (1,)}", "")), "'descr'");
  expect_fragment(refusal(npy(header("<f4", "(1,)"), raw(1.0F), 3)), "version 3");
  expect_fragment(refusal(npy(std::string(5000, ' '), "")), "header of 5000 bytes");
  expect_fragment(refusal("\x93NUMPY"), "numpy.save");
  expect_fragment(refusal("PK"), "numpy.save");
}

}  // namespace
