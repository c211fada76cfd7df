# shellcheck shell=bash
# What the scripts of this folder share: where the repository is, how a step is announced and where its log goes.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
log_dir=$root/build/logs
log_tail_lines=40

say() {
  printf '%s\n' "$*"
}

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

# run_logged NAME COMMAND...: one line while all is well; the tail of the log and the command's exit status when it is not.
run_logged() {
  local name=$1 log=$log_dir/$1.log status=0
  shift
  mkdir -p "$log_dir"
  "$@" >"$log" 2>&1 || status=$?
  if ((status != 0)); then
    {
      say "$name failed (exit $status). Last $log_tail_lines lines of $log:"
      tail -n "$log_tail_lines" "$log"
    } >&2
  fi
  return "$status"
}

# Two compilations at a time fit into a small machine's memory; CMAKE_BUILD_PARALLEL_LEVEL overrides, as for cmake itself.
num_jobs() {
  local cores
  cores=$(nproc)
  printf '%s\n' "${CMAKE_BUILD_PARALLEL_LEVEL:-$((cores < 2 ? cores : 2))}"
}
