// The commands around op packs: dsv3-golden op writes one, dsv3-verify op judges somebody's output against it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tools/op_pack/bench.hpp"

namespace tools {

struct OpFlags {
  op_pack::PackRequest request;
  std::string out;
};

// One subcommand for each kind, whose help lists its shape keys.
void add_op(CLI::App& command, OpFlags& flags);
int run_op(const OpFlags& flags);

struct OpVerifyFlags {
  std::string pack;
  std::string output;
  bool json = false;
};

void add_op_verify(CLI::App& command, OpVerifyFlags& flags);
// 0: inside everywhere, 1: not.
int run_op_verify(const OpVerifyFlags& flags);

}  // namespace tools
