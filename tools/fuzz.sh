# shellcheck shell=bash
# tools/check --fuzz: every fuzzer of tests/fuzz for some minutes, a line for each. Sourced by tools/check.

fuzz_targets=(arithmetic config index manifest map pickle safetensors tokenizer torch)
fuzz_max_input_bytes=16384
fuzz_memory_mb=256
fuzz_seconds_per_input=1

# fuzz_one TARGET MINUTES: what was found lies in build-fuzz/findings; what was learnt about the format stays in build-fuzz/corpus.
fuzz_one() {
  local target=$1 seconds=$(($2 * 60)) log=$log_dir/fuzz-$1.log status=0 cpu_s runs
  local learnt=$root/build-fuzz/corpus/$target findings=$root/build-fuzz/findings
  mkdir -p "$learnt" "$findings"
  # The sanitizer would keep as much freed memory as the reader may hold altogether.
  TIMEFORMAT='%U'
  cpu_s=$({ time ASAN_OPTIONS=quarantine_size_mb=8:detect_leaks=0 "$root/build-fuzz/bin/fuzz.$target" "$learnt" \
    "$root/tests/fuzz/corpus/$target" -max_total_time="$seconds" -max_len="$fuzz_max_input_bytes" \
    -timeout="$fuzz_seconds_per_input" -rss_limit_mb="$fuzz_memory_mb" -malloc_limit_mb="$fuzz_memory_mb" \
    -artifact_prefix="$findings/$target-" -print_final_stats=1 >"$log" 2>&1; } 2>&1) || status=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  if ((status == 0)); then
    say "fuzz: $target ok ($cpu_s s of CPU, ${runs:-no} inputs)"
  else
    say "fuzz: $target fail: $(grep -m1 -E 'ERROR|what\(\)|runtime error' "$log"); the input is in $findings, the log is $log"
  fi
  return "$status"
}

# fuzz_all MINUTES
fuzz_all() {
  local target failed=0 running=0
  run_logged configure-host-fuzz cmake --preset host-fuzz || return 1
  run_logged build-host-fuzz cmake --build --preset host-fuzz -j "$(num_jobs)" || return 1
  for target in "${fuzz_targets[@]}"; do
    if ((running == $(num_jobs))); then
      wait -n || failed=$((failed + 1))
      running=$((running - 1))
    fi
    fuzz_one "$target" "$1" &
    running=$((running + 1))
  done
  while ((running > 0)); do
    wait -n || failed=$((failed + 1))
    running=$((running - 1))
  done
  ((failed == 0))
}
