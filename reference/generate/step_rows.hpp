// What every step of a generation needs: rows of tensors picked and joined, pieces that fit one step, and the states it leaves.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/probe.hpp"
#include "model/tensor_view.hpp"

namespace reference {

// Where a row of a step belongs.
struct RowOrigin {
  int64_t request = 0;   // index in the batch
  int64_t position = 0;  // in its sequence
};

// Somebody who is shown every step of a generation: whose rows it computes, then its ops.
class StepProbe : public model::Probe {
 public:
  virtual void enter_step(std::vector<RowOrigin> rows) = 0;
};

// Keeps the value of one op, and passes everything on.
class StateProbe : public model::Probe {
 public:
  // `other` may be null.
  StateProbe(std::string op_id, model::Probe* other) : op_id_(std::move(op_id)), other_(other) {}

  [[nodiscard]] bool wants(const model::Op& op) const override { return other_ != nullptr && other_->wants(op); }
  void see(const model::Op& op, const model::TensorView& value) override {
    if (op.id == op_id_) {
      state_ = value;
    }
    if (other_ != nullptr) {
      other_->see(op, value);
    }
  }

  [[nodiscard]] const model::TensorView& state() const { return state_; }

 private:
  std::string op_id_;
  model::Probe* other_;
  model::TensorView state_;
};

// Rows [row_len] of tensors of one format, one after another; empty views are left out.
model::TensorView join_rows(std::span<const model::TensorView> tensors);

// A piece of one item's work: `count` rows behind those that are done.
struct Piece {
  size_t item = 0;
  int64_t count = 0;
};

// As many of the rows still to do, item by item, as fit into `budget`; empty when everything is done.
std::vector<Piece> next_pieces(std::span<const int64_t> rows_left, int64_t budget);

}  // namespace reference
