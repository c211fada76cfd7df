#include "simulator/timing_table.hpp"

#include <gtest/gtest.h>

#include "model/check.hpp"
#include "tests/temp_dir.hpp"

namespace simulator {
namespace {

TimingTable read(const std::string& text) {
  const TempDir directory;
  write_bytes(directory / "table.csv", text);
  return read_timing_table(directory / "table.csv");
}

void expect_refused(const std::string& text, const std::string& part) {
  try {
    read(text);
    ADD_FAILURE() << "accepted, expected: " << part;
  } catch (const model::InputError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("table.csv"), std::string::npos) << error.what();
  }
}

void expect_format(const std::string& text,
                   const std::string& format,
                   TimingKind kind,
                   const std::vector<double>& axes,
                   const std::vector<double>& times_us) {
  const TimingTable table = read(text);
  EXPECT_EQ(table.format, format);
  EXPECT_EQ(table.kind, kind);
  ASSERT_EQ(table.rows.size(), 1U);
  EXPECT_EQ(table.rows[0].axes, axes);
  ASSERT_EQ(table.rows[0].times_us.size(), times_us.size());
  for (size_t i = 0; i < times_us.size(); ++i) {
    EXPECT_DOUBLE_EQ(table.rows[0].times_us[i].value(), times_us[i]);
  }
}

TEST(TimingTable, Aiconfigurator_IsReadInMilliseconds) {
  expect_format(
      "framework,version,device,op_name,kernel_source,gemm_dtype,m,n,k,latency\nsglang,0.5,H100,gemm,x,fp8,1,2,3,0.5\n",
      "gemm",
      TimingKind::kGemm,
      {1, 2, 3},
      {500});
  expect_format(
      "framework,version,device,op_name,kernel_source,moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,"
      "moe_tp_size,moe_ep_size,distribution,latency\na,b,c,d,e,fp8,64,7168,2048,8,256,1,8,uniform,0.25\n",
      "moe aiconfigurator",
      TimingKind::kMoe,
      {64, 7168, 2048, 8, 256, 1, 8},
      {250});
  expect_format(
      "framework,version,device,op_name,kernel_source,mla_dtype,kv_cache_dtype,num_heads,batch_size,isl,tp_size,step,"
      "latency\na,b,c,d,e,bf16,fp8,128,16,1000,1,24,0.1\n",
      "mla decode aiconfigurator",
      TimingKind::kMlaDecode,
      {128, 16, 1024, 1},  // the cache is isl + step long
      {100});
  expect_format(
      "framework,version,device,op_name,kernel_source,bmm_dtype,num_tokens,num_heads,latency\na,b,c,d,e,bf16,8,128,2\n",
      "mla bmm aiconfigurator",
      TimingKind::kBatchMatmul,
      {8, 128},
      {2000});
  expect_format(
      "framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,latency\na,b,c,d,e,half,8,1024,"
      "1\n",
      "collective aiconfigurator",
      TimingKind::kCollective,
      {8, 2048},  // elements of two bytes
      {1000});
  expect_format(
      "node_num,hidden_size,num_token,num_topk,num_experts,combine_avg_t_us,combine_bandwidth_gbps,dispatch_avg_t_us,"
      "dispatch_bandwidth_gbps\n2,7168,64,8,256,70,1,50,1\n",
      "DeepEP low latency aiconfigurator",
      TimingKind::kDispatch,
      {2, 64, 7168, 8, 256},
      {50, 70});
  expect_format(
      "op_name,moe_dtype,num_tokens,hidden_size,topk,num_experts,moe_ep_size,distribution,latency\n"
      "alltoall_dispatch,fp8,32,7168,8,256,16,balanced,0.02\n",
      "all-to-all aiconfigurator",
      TimingKind::kDispatch,
      {32, 7168, 8, 256, 16},
      {20});
}

TEST(TimingTable, AiconfiguratorsWideTables_AreRead) {
  expect_format(
      "moe_dtype,moe_kernel,num_tokens,dp_num_tokens,rank0_num_tokens,num_slots,hidden_size,inter_size,topk,num_"
      "experts,"
      "moe_tp_size,moe_ep_size,distribution,simulation_mode,latency\nfp8,x,512,16,40,288,7168,2048,8,256,1,32,p,y,0."
      "2\n",
      "moe wide EP aiconfigurator",
      TimingKind::kMoe,
      {512, 16, 40, 288, 7168, 2048, 8, 256, 1, 32},
      {200});
  expect_format(
      "node_num,hidden_size,num_token,num_topk,num_experts,dispatch_sms,dispatch_transmit_us,dispatch_notify_us,"
      "combine_sms,combine_transmit_us,combine_notify_us\n4,7168,128,8,256,20,90,10,24,180,20\n",
      "DeepEP normal aiconfigurator",
      TimingKind::kDispatch,
      {4, 128, 7168, 8, 256, 20, 24},
      {90, 10, 180, 20});
  expect_format(
      "comm_backend,phase,comm_dtype,ep_size,node_num,hidden_size,topk,num_experts,sms,num_tokens,latency(us)\n"
      "deepep,dispatch,fp8,16,2,7168,8,256,0,64,55\n",
      "all-to-all of all backends aiconfigurator",
      TimingKind::kDispatch,
      {16, 2, 7168, 8, 256, 0, 64},
      {55});
}

TEST(TimingTable, InferSim_IsRead) {
  expect_format("m,k,n,latency_us,mfu\n16,7168,1536,16.4,0.01\n", "gemm", TimingKind::kGemm, {16, 1536, 7168}, {16.4});
  expect_format(
      "num_experts,num_gpus,num_local_experts,topk,hidden_size,intermediate_size,batch_size_per_gpu,tokens_per_expert,"
      "up_proj_us,up_mfu,down_proj_us,down_mfu\n256,8,32,8,7168,2048,32,8,100,0.1,60,0.1\n",
      "grouped gemm InferSim",
      TimingKind::kGroupedGemm,
      {256, 8, 32, 8, 7168, 2048, 32, 8},
      {100, 60});
  expect_format("dtype,kv_dtype,batch_size,kv_len,latency_us,mfu\nbf16,bf16,1,4096,21.6,0.05\n",
                "mla decode InferSim",
                TimingKind::kMlaDecode,
                {1, 4096},
                {21.6});
}

TEST(TimingTable, DeepSeekSimulatorAndLlmServingSim_AreRead) {
  expect_format("matrix_idx,tp,m,n,k,time_us,throughput_TFLOPS,bandwidth_GBps\n0,1,64,2112,7168,9.4,206,1688\n",
                "gemm DeepSeek_Simulator",
                TimingKind::kGemm,
                {1, 64, 2112, 7168},
                {9.4});
  expect_format(
      "b,s_q,mean_sk,h_q,h_kv,d,dv,causal,varlen,latency,tflops,bandwidth\n128,1,4096,128,1,576,512,True,False,0.29,1,"
      "1\n",
      "mla decode DeepSeek_Simulator",
      TimingKind::kMlaDecode,
      {128, 1, 4096, 128, 1, 576, 512},
      {290});
  expect_format("layer,tokens,time_us\nattention,32,7.5\n", "layer LLMServingSim", TimingKind::kLayer, {32}, {7.5});
  expect_format(
      "tokens,activated_experts,time_us\n32,16,70\n", "experts LLMServingSim", TimingKind::kMoe, {32, 16}, {70});
  expect_format("prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n512,0,8,4096,900\n",
                "mixed batch LLMServingSim",
                TimingKind::kLayer,
                {512, 0, 8, 4096},
                {900});
}

TEST(TimingTable, UnitInTheName_Decides) {
  EXPECT_EQ(read("m,n,k,latency_us\n1,1,1,5\n").rows[0].times_us[0], 5);
  EXPECT_EQ(read("m,n,k,latency_ms\n1,1,1,5\n").rows[0].times_us[0], 5000);
  EXPECT_EQ(read("m,n,k,latency_ns\n1,1,1,5000\n").rows[0].times_us[0], 5);
  EXPECT_EQ(read("m,n,k,latency_s\n1,1,1,0.5\n").rows[0].times_us[0], 500'000);
}

TEST(TimingTable, TimeThatWasNotMeasured_IsAbsent) {
  const std::string header = "ep_size,tokens_per_rank,hidden,topk,dispatch_latency_us,combine_latency_us\n";
  const TimingTable table = read(header + "8,1,7168,8,18.9,\n");
  EXPECT_EQ(table.rows.at(0).times_us, (std::vector<std::optional<double>>{18.9, std::nullopt}));
  expect_refused(header + "8,1,7168,8,,\n", "table.csv:2: column dispatch_latency_us: \"\"");
}

TEST(TimingTable, UnknownUnit_IsRefused) {
  expect_refused("m,n,k,latency_minutes\n1,1,1,5\n", "column latency_minutes: expected a unit that is known");
  expect_refused("m,n,k,latency(cycles)\n1,1,1,5\n", "column latency(cycles): expected a unit");
  expect_refused("layer,tokens,time\nx,1,5\n", "column time: expected a unit");
}

TEST(TimingTable, LabelsKeepTheirColumnsAndCommentsAreSkipped) {
  const TimingTable table =
      read("# made by hand\ngpu,kernel,m,n,k,latency_us,source\n\"H100, SXM\",\"a \"\"b\"\"\",1,2,3,4,x\n\n");
  EXPECT_EQ(table.label_names, (std::vector<std::string>{"gpu", "kernel"}));
  EXPECT_EQ(table.rows.at(0).labels, (std::vector<std::string>{"H100, SXM", "a \"b\""}));
  EXPECT_EQ(table.rows.at(0).line, 3);
  EXPECT_EQ(table.axis_names, (std::vector<std::string>{"m", "n", "k"}));
}

TEST(TimingTable, BadRow_IsNamedByItsLine) {
  const std::string header = "gpu,m,n,k,latency_us\nH100,1,1,1,5\n";
  expect_refused(header + "H100,1,1,1,fast\n", "table.csv:3: column latency_us: \"fast\", expected a number");
  expect_refused(header + "H100,1,1,1,-5\n", "table.csv:3: column latency_us: \"-5\"");
  expect_refused(header + "H100,1,1,1,nan\n", "table.csv:3: column latency_us: \"nan\"");
  expect_refused(header + "H100,1,1,1,inf\n", "table.csv:3: column latency_us: \"inf\"");
  expect_refused(header + "H100,1,1,1,\n", "table.csv:3: column latency_us: \"\"");
  expect_refused(header + "H100,1,1,5x,5\n", "table.csv:3: column k: \"5x\"");
  expect_refused(header + "H100,1,1,5\n", "table.csv:3: 4 fields, but the header has 5");
  expect_refused(header + "H100,1,1,1,5,6\n", "table.csv:3: 6 fields");
  expect_refused(header + "\"H100,1,1,1,5\n", "table.csv:3: a line that is too long, or a quote");
}

TEST(TimingTable, HeaderThatSaysTooLittle_IsRefused) {
  expect_refused("", "no header line");
  expect_refused("m,n,k,latency_us\n", "no rows");
  expect_refused("m,n,latency_us\n1,1,1\n",
                 "(m,n,latency_us) are those of no known timing table; closest is gemm, which also needs k");
  expect_refused("m,n,k,gpu\n1,1,1,x\n", "closest is gemm, which also needs latency_us");
  expect_refused("a,b\n1,2\n", "its columns (a,b) are those of no known timing table");
  expect_refused("m,n,k,colour,latency_us\n1,1,1,red,1\n", "column colour is unknown in a table of format gemm");
  expect_refused("m,m,k,latency_us\n1,1,1,1\n", "column m is there twice");
  expect_refused("m,n,k,,latency_us\n1,1,1,1,1\n", "a column without a name");
  EXPECT_THROW(read_timing_table("/nonexistent/table.csv"), model::InputError);
  EXPECT_THROW(read_timing_table("/"), model::InputError);
}

constexpr const char* kNcclText =
    "# nThread 1 nGpus 2 minBytes 8 maxBytes 16\n"
    "#\n"
    "# Using devices\n"
    "#  Rank  0 Group  0 Pid  42 on node device  0 [0x1b] NVIDIA H100\n"
    "#  Rank  1 Group  0 Pid  42 on node device  1 [0x43] NVIDIA H100\n"
    "#\n"
    "#                                                              out-of-place                       in-place\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw "
    "#wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
    "           8             2     float     sum      -1    11.20    0.00    0.00      0    10.90    0.00    0.00     "
    " 0\n"
    "          16             4     float     sum      -1    11.30    0.00    0.00    N/A    11.00    0.00    0.00    "
    "N/A\n"
    "# Out of bounds values : 0 OK\n";

TEST(NcclTests, Text_IsReadWithRanksAndBothTimes) {
  const TempDir directory;
  write_bytes(directory / "nccl.txt", kNcclText);
  const TimingTable table = read_nccl_tests(directory / "nccl.txt");
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(table.rows[1].axes, (std::vector<double>{2, 16}));
  EXPECT_EQ(table.rows[1].times_us, (std::vector<std::optional<double>>{11.3, 11.0}));
  EXPECT_EQ(table.rows[1].labels, (std::vector<std::string>{"float", "sum"}));
  EXPECT_EQ(table.rows[1].line, 11);
}

TEST(NcclTests, TextThatIsDamaged_IsRefusedByLine) {
  const TempDir directory;
  const auto refusal = [&](std::string text, const std::string& from, const std::string& to) {
    text.replace(text.find(from), from.size(), to);
    write_bytes(directory / "nccl.txt", text);
    try {
      read_nccl_tests(directory / "nccl.txt");
    } catch (const model::InputError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(refusal(kNcclText, "11.30", "fast").find("nccl.txt:11: time \"fast\""), std::string::npos);
  EXPECT_NE(refusal(kNcclText, "11.30", "").find("nccl.txt:11: 12 fields"), std::string::npos);
  EXPECT_NE(refusal(kNcclText, "(us)  (GB/s)  (GB/s)            (us)", "(ms) (GB/s) (GB/s) (ms)").find("units"),
            std::string::npos);
  EXPECT_NE(refusal("# nothing\n", "nothing", "here").find("\"# Rank\" lines"), std::string::npos);
  EXPECT_THROW(read_nccl_tests(directory / "none.txt"), model::InputError);
}

}  // namespace
}  // namespace simulator
