#include "simulator/step_log.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "model/check.hpp"
#include "tests/temp_dir.hpp"

namespace simulator {
namespace {

class StepLog : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    const std::string path = (temp_dir_.path() / "steps.csv").string();
    std::ofstream(path) << text;
    return path;
  }

  std::string refusal(const std::string& text) {
    const std::string path = write(text);
    try {
      read_step_log(path);
    } catch (const model::InputError& error) {
      return error.what();
    }
    return "";
  }

 private:
  TempDir temp_dir_;
};

// Steps of a cluster whose host takes 3 ms and whose kernels take 1.4 times the model's.
std::vector<LoggedStep> slow_cluster(const Deployment& deployment,
                                     const std::vector<ChosenFit>& fits,
                                     MoeCurves& curves) {
  EngineProfile engine = deployment.engine;
  engine.stream_factor = 1.4;
  engine.host_us = 3000;
  const StepModel model(deployment.config, deployment.hardware, fits, engine, deployment.decode.rank, curves);
  std::vector<LoggedStep> steps;
  for (const double sequences : {1.0, 4.0, 16.0, 64.0, 128.0}) {
    for (const double kv_len : {1024.0, 8192.0}) {
      steps.push_back({sequences, kv_len, model.decode({sequences, kv_len}).total_us / 1e3});
    }
  }
  return steps;
}

TEST_F(StepLog, ConstantsOfASlowClusterAreFound) {
  const Deployment deployment = build_deployment({.preset = "h200-tp8"});
  const auto fits = choose_fits(built_in_calibrations(), deployment.hardware);
  MoeCurves curves;
  const auto steps = slow_cluster(deployment, fits, curves);
  const CorrectedEngine engine = correct_engine(deployment, fits, curves, steps, "steps.csv");
  EXPECT_NEAR(engine.after.stream_factor, 1.4, 0.01);
  EXPECT_NEAR(engine.after.host_us, 3000, 60);
  EXPECT_GT(summarise(engine.predicted).median_abs_error_pct, 20);
  EXPECT_LT(summarise(engine.corrected).median_abs_error_pct, 1);
  EXPECT_TRUE(is_measured_on(engine.after, deployment.hardware));
  EXPECT_FALSE(is_measured_on(engine.after, load_hardware("h100")));
}

TEST_F(StepLog, UnitsAreInTheNames) {
  const auto steps =
      read_step_log(write("# a log\ncontext_tokens,step_us,sequences\n100,2500,8\n200,3e3,8\n300,4000,16\n"));
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_DOUBLE_EQ(steps[0].time_ms, 2.5);
  EXPECT_DOUBLE_EQ(steps[1].time_ms, 3);
  EXPECT_DOUBLE_EQ(steps[2].sequences, 16);
  EXPECT_DOUBLE_EQ(steps[2].kv_len, 300);
}

TEST_F(StepLog, BadLogsAreRefusedByLine) {
  EXPECT_NE(refusal("sequences,context_tokens,step_ns\n1,2,3\n").find("column 'step_ns', expected"), std::string::npos);
  EXPECT_NE(refusal("sequences,context_tokens\n1,2\n").find("2 columns, expected"), std::string::npos);
  EXPECT_NE(refusal("sequences,step_ms,step_s\n1,2,3\n").find("column 'step_s', expected"), std::string::npos);
  EXPECT_NE(refusal("sequences,context_tokens,step_ms\n1,2,3\n1,-2,3\n").find(":3: context_tokens is '-2'"),
            std::string::npos);
  EXPECT_NE(refusal("sequences,context_tokens,step_ms\n1,2,3\n1,2,3\n").find("2 steps, expected at least 3"),
            std::string::npos);
}

TEST(EngineFile, OneEngineIsReadBack) {
  const TempDir temp_dir;
  const std::string path = (temp_dir.path() / "mine.json").string();
  EngineProfile mine = load_engine("sglang");
  mine.host_us = 1234;
  mine.measured_on = "h200";
  std::ofstream(path) << engines_json({mine});
  EXPECT_EQ(load_engine(path).host_us, 1234);
  EXPECT_EQ(load_engine(path).measured_on, "h200");
  std::ofstream(path) << engines_json({mine, load_engine("vllm")});
  EXPECT_THROW(load_engine(path), model::InputError);
}

}  // namespace
}  // namespace simulator
