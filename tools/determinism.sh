# shellcheck shell=bash
# tools/check --determinism: the same bits from every compiler, optimisation, level of instructions and number of threads. Sourced by
# tools/check.

# determinism_build NAME COMPILER CMAKE-OPTION...: the hashes of one build, in build/determinism/NAME.txt.
determinism_build() {
  local name=$1 compiler=$2 folder=$root/build-determinism/$1 launcher=() out=$root/build/determinism
  shift 2
  command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  run_logged "configure-$name" cmake --preset host -B "$folder" -DCMAKE_CXX_COMPILER="$compiler" \
    -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON "${launcher[@]}" "$@" || return 1
  run_logged "build-$name" cmake --build "$folder" --target determinism numerics_digest -j "$(num_jobs)" || return 1
  mkdir -p "$out"
  {
    "$folder/bin/determinism" && printf 'numerics 1 functions %s\n' "$("$folder/bin/numerics_digest")"
  } >"$out/$name.txt"
}

determinism_all() {
  local compiler level printed=() out=$root/build/determinism
  for compiler in g++ clang++; do
    for level in O3 O2 O0; do
      determinism_build "$compiler-$level" "$compiler" "-DCMAKE_CXX_FLAGS_RELEASE=-$level -DNDEBUG" || return 1
      printed+=("$compiler -$level=$out/$compiler-$level.txt")
    done
  done
  determinism_build g++-sanitizers g++ -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDSV3_SANITIZE=address,undefined || return 1
  printed+=("g++ with sanitizers=$out/g++-sanitizers.txt")
  say "determinism: mode fast has no fixed bits: the order of its sums is the machine's"
  python3 "$root/tests/determinism/compare.py" "${printed[@]}"
}
