#include "tools/cli.hpp"

#include <fmt/core.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <thread>

#include "gpu/portable/require.hpp"
#include "model/checkpoint.hpp"
#include "reference/numerics/environment.hpp"
#include "tools/synthetic/argument.hpp"
#include "version.hpp"

namespace tools {
namespace {

// A prompt's steps ask for more at a time than is kept for reuse (reference/reused.hpp). What is freed stays with the process up to 64
// MiB, in place of being given back to the system, which would clear the same pages for the next op: an eighth of the time of a prefill.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
#endif
}

}  // namespace

int run_main(CLI::App& app, int argc, char** argv, const std::function<int()>& job) {
  keep_freed_memory();
  try {
    app.parse(argc, argv);
    reference::check_float_environment();
    return job();
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "{}: {} (try --help)\n", app.get_name(), error.what());
  } catch (const model::InputError& error) {
    clear_progress();
    fmt::print(stderr, "{}: {}\n", app.get_name(), error.what());
  } catch (const gpu::DeviceError& error) {
    clear_progress();
    fmt::print(stderr, "{}: {}\n", app.get_name(), error.what());
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "{}: out of memory\n", app.get_name());
  } catch (const std::exception& error) {
    clear_progress();
    fmt::print(stderr, "{}: internal error: {}\n", app.get_name(), error.what());
  }
  return kExitBadInput;
}

void describe(CLI::App& app, const std::string& examples) {
  app.set_version_flag("--version", "dsv3 " DSV3_VERSION " (" DSV3_COMMIT ")");
  app.footer("\n" + examples);
  app.get_formatter()->column_width(34);
}

CLI::Option* add_seed(CLI::App& app, uint64_t& seed, const std::string& what) {
  const auto is_seed = [](const std::string& text) -> std::string {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size()
               ? ""
               : fmt::format("{} is not a whole number from 0 to 2^64 - 1", text);
  };
  return app.add_option("--seed", seed, what)->check(CLI::Validator(is_seed, "", "seed"))->capture_default_str();
}

OpenedCheckpoint open_checkpoint(const std::string& argument) {
  if (synthetic::is_synthetic(argument)) {
    auto generated = synthetic::open_synthetic(argument);
    std::string hash = generated->hash();
    const bool hashes_weights = !generated->is_pooled();
    return {std::move(generated), std::move(hash), hashes_weights};
  }
  auto checkpoint = std::make_unique<model::Checkpoint>(argument);
  std::string hash = checkpoint->header_hash();
  return {std::move(checkpoint), std::move(hash)};
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> items;
  std::stringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) {
    if (!item.empty()) {
      items.push_back(item);
    }
  }
  return items;
}

void show_progress(const std::string& line) {
  if (isatty(STDERR_FILENO) != 0) {
    fmt::print(stderr, "\r\033[K{}", line);
  }
}

void clear_progress() {
  if (isatty(STDERR_FILENO) != 0) {
    fmt::print(stderr, "\r\033[K");
  }
}

int default_threads() {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace tools
