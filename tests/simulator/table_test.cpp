#include "simulator/table.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/check.hpp"

namespace simulator {
namespace {

Table sample() {
  Table table{
      .name = "sample",
      .title = "A sample",
      .columns = {{"name", "name"}, {"weight_bytes", "weights", "GB", 1e9, 1}, {"time_us", "time", "us", 1, 2}}};
  table.add({std::string("one"), int64_t{1'234'567'890'123}, 0.1});
  table.add({std::string("two, \"b\""), std::monostate(), 1e-7});
  return table;
}

TEST(Table, Text_AlignsAndShowsUnitsUnderHeadings) {
  EXPECT_EQ(table_text(sample()),
            "A sample\n"
            "  name      weights  time\n"
            "                 GB    us\n"
            "  one       1,234.6  0.10\n"
            "  two, \"b\"        -  0.00\n");
}

TEST(Table, Csv_KeepsIntegersExactAndQuotes) {
  EXPECT_EQ(table_csv(sample()),
            "name,weight_bytes,time_us\n"
            "one,1234567890123,0.1\n"
            "\"two, \"\"b\"\"\",,1e-07\n");
}

TEST(Table, Json_HasOneObjectForARow) {
  EXPECT_EQ(
      table_json(sample()).dump(),
      R"([{"name":"one","weight_bytes":1234567890123,"time_us":0.1},{"name":"two, \"b\"","weight_bytes":null,"time_us":1e-07}])");
}

TEST(Table, Record_IsAListOfFieldsAndOneObject) {
  Table table{
      .name = "r", .title = "Record", .columns = {{"a", "first"}, {"b_bytes", "second", "B"}}, .is_record = true};
  table.add({int64_t{-1000}, int64_t{999}});
  EXPECT_EQ(table_text(table), "Record\n  first   -1,000\n  second  999 B\n");
  EXPECT_EQ(table_json(table).dump(), R"({"a":-1000,"b_bytes":999})");
}

TEST(Table, RowOfAnotherLength_IsAnError) {
  Table table = sample();
  EXPECT_THROW(table.add({int64_t{1}}), model::CheckError);
}

}  // namespace
}  // namespace simulator
