// From the options of dsv3-infer to requests: prompts are tokenised, sequences fitted to the model.
#pragma once

#include <optional>
#include <vector>

#include "model/config.hpp"
#include "reference/generate/generator.hpp"
#include "text/tokenizer.hpp"
#include "tools/infer/flags.hpp"

namespace tools {

// One request for each prompt, checked against the model. Throws InputError that names the option or the line.
std::vector<reference::Request> requests_of(const InferFlags& flags,
                                            const model::ModelConfig& config,
                                            const std::optional<text::Tokenizer>& tokenizer);

}  // namespace tools
