#include "golden/case_values.hpp"

#include <algorithm>
#include <memory>

namespace golden {
namespace {

bool dump_has(const Dump& dump, const std::string& case_name, std::string_view suffix) {
  return std::any_of(dump.tensors.begin(), dump.tensors.end(), [&](const auto& entry) {
    return entry.first.starts_with(case_name + "/") && entry.first.ends_with(suffix);
  });
}

// Rows of a cache, appended one by one.
class CacheRows {
 public:
  void append(const model::TensorView& from, int64_t row) {
    const auto bytes = model::slice_rows(from, row, row + 1).bytes;
    bytes_->insert(bytes_->end(), bytes.begin(), bytes.end());
  }
  // `len` elements of a row, from `begin`.
  void append_part(const model::TensorView& from, int64_t row, int64_t begin, int64_t len) {
    const auto width = static_cast<size_t>(model::dtype_bytes(from.dtype));
    const auto bytes = model::slice_rows(from, row, row + 1)
                           .bytes.subspan(static_cast<size_t>(begin) * width, static_cast<size_t>(len) * width);
    bytes_->insert(bytes_->end(), bytes.begin(), bytes.end());
  }
  [[nodiscard]] model::TensorView take(model::DType dtype, model::Shape shape) const {
    CHECK_EQ(static_cast<int64_t>(bytes_->size()), model::num_elements(shape) * model::dtype_bytes(dtype));
    return {dtype, std::move(shape), *bytes_, bytes_};
  }

 private:
  std::shared_ptr<std::vector<std::byte>> bytes_ = std::make_shared<std::vector<std::byte>>();
};

// Old and new rows of every sequence, one sequence after another: [keys, latent | rope].
model::TensorView joined_rows(const model::Workload& workload,
                              const model::TensorView& before,
                              const model::TensorView& latent,
                              const model::TensorView& k_rope) {
  CacheRows rows;
  int64_t old_row = 0;
  int64_t token = 0;
  for (const auto& [num_cached, num_new] : workload.sequences) {
    for (int64_t i = 0; i < num_cached; ++i) {
      rows.append(before, old_row++);
    }
    for (int64_t i = 0; i < num_new; ++i, ++token) {
      rows.append(latent, token);
      rows.append(k_rope, token);
    }
  }
  return rows.take(latent.dtype, {workload.num_keys(), latent.row_len() + k_rope.row_len()});
}

}  // namespace

model::Workload workload_of(const model::ModelConfig& config,
                            const GoldenFile& golden,
                            const Dump& dump,
                            const Case& step) {
  model::Workload workload;
  workload.sequences = sequence_steps(golden.manifest.cases, step);
  const bool several = std::any_of(
      workload.sequences.begin(), workload.sequences.end(), [](const auto& sequence) { return sequence.num_new > 1; });
  // Each op is judged by the form its dump shows; without a trace of either, by the form the golden run used.
  bool expanded = golden.manifest.attention == "naive" || (golden.manifest.attention == "by-length" && several);
  if (dump_has(dump, step.name, ".attn.kv_b")) {
    expanded = true;
  } else if (dump_has(dump, step.name, ".attn.q_latent") || dump_has(dump, step.name, ".attn.o_latent")) {
    expanded = false;
  }
  workload.attention_form = expanded ? model::AttentionForm::kExpanded : model::AttentionForm::kAbsorbed;
  workload.num_mtp_layers =
      std::min<int64_t>(config.num_nextn_predict_layers, static_cast<int64_t>(step.mtp_ids.size()));
  return workload;
}

CaseValues::CaseValues(const model::ModelConfig& config,
                       const GoldenFile& golden,
                       const Dump& dump,
                       const Case& step,
                       const model::Workload& workload,
                       const CaseValues* earlier)
    : golden_(golden), dump_(dump), step_(step), workload_(workload), earlier_(earlier) {
  std::vector<int32_t> flat;
  for (const auto& tokens : step.sequences) {
    flat.insert(flat.end(), tokens.begin(), tokens.end());
  }
  const auto num_tokens = static_cast<int64_t>(flat.size());
  tokens_["tokens"] = model::make_tensor(model::DType::kI32, {num_tokens}, flat);
  for (int64_t k = 0; k < workload.num_mtp_layers; ++k) {
    std::vector<int32_t> shifted(flat.begin() + std::min<int64_t>(k + 1, num_tokens), flat.end());
    const auto first_drafted = std::max<int64_t>(0, k + 1 - num_tokens);
    shifted.insert(shifted.end(), step.mtp_ids.begin() + first_drafted, step.mtp_ids.begin() + k + 1);
    tokens_["mtp." + std::to_string(k) + ".tokens"] = model::make_tensor(model::DType::kI32, {num_tokens}, shifted);
  }
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    add_cache(layer, "layer." + std::to_string(layer));
    add_expanded(config, layer, "layer." + std::to_string(layer));
  }
  for (int64_t k = 0; k < workload.num_mtp_layers; ++k) {
    add_cache(config.num_hidden_layers + k, "mtp." + std::to_string(k) + ".layer");
  }
}

void CaseValues::add_cache(int64_t layer, const std::string& prefix) {
  const std::string id = "cache." + std::to_string(layer) + ".latent";
  const auto before = rows_before(id);
  if (before) {
    cache_before_[id] = *before;
  }
  const auto* latent = find(prefix + ".attn.kv_a_norm");
  const auto* k_rope = find(prefix + ".attn.k_rope");
  if (const auto* dumped = find(id); dumped != nullptr) {
    cache_after_[id] = *dumped;
  } else if (before && latent != nullptr && k_rope != nullptr && latent->dtype == k_rope->dtype &&
             (before->bytes.empty() || before->dtype == latent->dtype)) {
    cache_after_[id] = joined_rows(workload_, *before, *latent, *k_rope);
  }
}

std::optional<model::TensorView> CaseValues::rows_before(const std::string& cache_id) {
  const int64_t num_rows = workload_.num_keys() - workload_.num_tokens();
  if (num_rows == 0) {
    return model::TensorView{};
  }
  const CaseValues* known = earlier_;
  while (known != nullptr && !known->cache_after_.contains(cache_id)) {
    known = known->earlier_;
  }
  const auto* own = find(cache_id);
  const auto* recorded = golden(cache_id);
  const model::TensorView* shape_of = known != nullptr ? &known->cache_after_.at(cache_id)
                                      : own != nullptr ? own
                                                       : recorded;
  const auto usable = [&](const model::TensorView* rows, const model::Workload& workload) {
    return rows != nullptr && rows->dtype == shape_of->dtype && rows->num_rows() == workload.num_keys() &&
           rows->row_len() == shape_of->row_len();
  };
  CacheRows rows;
  int64_t own_row = 0;
  int64_t known_row = 0;
  for (size_t s = 0; s < workload_.sequences.size(); ++s) {
    int64_t num_known = 0;
    if (known != nullptr) {
      const auto& step = known->workload_.sequences.at(s);
      num_known = step.num_cached + step.num_new;
    }
    for (int64_t i = 0; i < workload_.sequences[s].num_cached; ++i) {
      if (i < num_known && usable(&known->cache_after_.at(cache_id), known->workload_)) {
        rows.append(known->cache_after_.at(cache_id), known_row + i);
      } else if (usable(own, workload_)) {
        rows.append(*own, own_row + i);
      } else if (usable(recorded, workload_)) {
        rows.append(*recorded, own_row + i);
        from_golden_.insert(cache_id);
      } else {
        return std::nullopt;
      }
    }
    known_row += num_known;
    own_row += workload_.sequences[s].num_cached + workload_.sequences[s].num_new;
  }
  return rows.take(shape_of->dtype, {num_rows, shape_of->row_len()});
}

void CaseValues::add_expanded(const model::ModelConfig& config, int64_t layer, const std::string& prefix) {
  const std::string id = prefix + ".attn.kv_b";
  const auto* own = find(id);
  if (own == nullptr || workload_.num_keys() == workload_.num_tokens()) {
    return;  // absorbed, or every row is new
  }
  if (own->num_rows() == workload_.num_keys()) {
    return;
  }
  const std::string cache = "cache." + std::to_string(layer);
  const auto* keys = find(cache + ".keys");
  const auto* values = find(cache + ".values");
  const bool cached = keys != nullptr && values != nullptr && keys->dtype == own->dtype &&
                      values->dtype == own->dtype && keys->num_rows() == workload_.num_keys() &&
                      values->num_rows() == workload_.num_keys();
  const model::TensorView* earlier = nullptr;
  if (earlier_ != nullptr) {
    bool assembled = false;
    earlier = earlier_->input(id, assembled);
  }
  const int64_t num_old = workload_.num_keys() - workload_.num_tokens();
  const bool from_earlier = earlier != nullptr && earlier->num_rows() == num_old && earlier->dtype == own->dtype;
  if (own->num_rows() != workload_.num_tokens() || (!cached && !from_earlier)) {
    return;
  }
  CacheRows rows;
  int64_t key = 0;  // of all sequences, new ones included
  int64_t old_row = 0;
  int64_t token = 0;
  for (const auto& [num_cached, num_new] : workload_.sequences) {
    for (int64_t i = 0; i < num_cached; ++i, ++key, ++old_row) {
      for (int64_t head = 0; cached && head < config.num_attention_heads; ++head) {
        rows.append_part(*keys, key, head * config.qk_head_dim(), config.qk_nope_head_dim);
        rows.append_part(*values, key, head * config.v_head_dim, config.v_head_dim);
      }
      if (!cached) {
        rows.append(*earlier, old_row);
      }
    }
    for (int64_t i = 0; i < num_new; ++i, ++key, ++token) {
      rows.append(*own, token);
    }
  }
  assembled_[id] = rows.take(own->dtype, {workload_.num_keys(), own->row_len()});
  if (cached && (!cache_after_.contains(cache + ".latent") || from_golden_.contains(cache + ".latent"))) {
    // Only the rope part is known; the latent part, which nothing reads when kv_b is given, is NaN.
    CacheRows latents;
    const model::TensorView unknown =
        model::make_tensor(model::DType::kBF16,
                           {1, config.kv_lora_rank},
                           std::vector<uint16_t>(static_cast<size_t>(config.kv_lora_rank), 0x7FC0));
    if (keys->dtype == unknown.dtype) {
      for (int64_t row = 0; row < workload_.num_keys(); ++row) {
        latents.append(unknown, 0);
        latents.append_part(*keys, row, config.qk_nope_head_dim, config.qk_rope_head_dim);
      }
      assembled_[cache + ".latent"] = latents.take(unknown.dtype, {workload_.num_keys(), config.latent_dim()});
    }
  }
}

const model::TensorView* CaseValues::input(const std::string& id, bool& assembled) const {
  const auto found = assembled_.find(id);
  assembled = found != assembled_.end();
  return assembled ? &found->second : find(id);
}

const model::TensorView* CaseValues::find(const std::string& id) const {
  if (const auto token = tokens_.find(id); token != tokens_.end()) {
    return &token->second;
  }
  const auto found = dump_.tensors.find(step_.name + "/" + id);
  return found == dump_.tensors.end() ? nullptr : &found->second;
}

const model::TensorView* CaseValues::cached_before(const std::string& cache_id) const {
  const auto found = cache_before_.find(cache_id);
  return found == cache_before_.end() ? nullptr : &found->second;
}

const model::TensorView* CaseValues::golden(const std::string& id) const {
  const auto found = golden_.tensors.find(step_.name + "/" + id);
  return found == golden_.tensors.end() ? nullptr : &found->second;
}

const Reduced* CaseValues::reduced(const std::string& id) const {
  const auto found = golden_.manifest.reduced.find(step_.name + "/" + id);
  return found == golden_.manifest.reduced.end() ? nullptr : &found->second;
}

const model::TensorView* CaseValues::sample(const std::string& id) const {
  return golden(id + kSampleSuffix);
}

bool CaseValues::has_golden_bits(const std::string& id) const {
  if (tokens_.contains(id)) {
    return true;
  }
  const auto* own = find(id);
  if (own == nullptr) {
    return false;
  }
  if (const auto* whole = golden(id); whole != nullptr) {
    return own->dtype == whole->dtype && own->shape == whole->shape && std::ranges::equal(own->bytes, whole->bytes);
  }
  const auto* kept = reduced(id);
  return kept != nullptr && model::dtype_name(own->dtype) == kept->dtype && own->shape == kept->shape &&
         content_hash(*own) == kept->hash;
}

}  // namespace golden
