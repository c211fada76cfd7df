// How prompts and answers of a workload vary in length: log-normal by their coefficient of variation, or as a file lists them.
#pragma once

#include <filesystem>
#include <vector>

namespace simulator {

struct LengthShape {
  std::vector<double> prompt_parts{1};  // lengths over the mean of equally likely parts of all prompts; their mean is 1
  double prompt_cv = 0;                 // standard deviation over mean
  double answer_cv = 0;
  double decoding_prompt =
      1;  // mean prompt of the requests met while they decode, over the mean: long answers are met more often
};

// Prompts and answers independent.
LengthShape log_normal_lengths(double prompt_cv, double answer_cv);

struct MeasuredLengths {
  double mean_prompt_tokens = 0;
  double mean_answer_tokens = 0;
  LengthShape shape;
};

// CSV, a request a row: prompt_tokens (or isl) and answer_tokens (or osl); other columns are not looked at. Throws InputError naming
// file and line.
MeasuredLengths read_lengths(const std::filesystem::path& path);

}  // namespace simulator
