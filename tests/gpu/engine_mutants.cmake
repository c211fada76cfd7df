# One-line faults of the engine on several ranks, and what the verifier has to say about each (engine_mutant.cpp). Each is a program whose
# own object takes the place of the library's, built when it is to run.

add_library(engine_mutant_main OBJECT EXCLUDE_FROM_ALL engine_mutant.cpp)
target_link_libraries(engine_mutant_main PRIVATE tools_engine_dump)
add_custom_target(engine_mutants)

# dsv3_engine_mutant(<id> FILE <source> FIND <text> REPLACE <text> BREAKS <sentence> LAYOUT <tp> <ep> <dp> <slots> OP <id>
#                    [RANKS <digits>] [WORDS <text>])
# FIND has to be in the file once: otherwise building fails, and the list needs an update. Without FIND nothing is changed.
function(dsv3_engine_mutant id)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "FILE;FIND;REPLACE;BREAKS;OP;RANKS;WORDS" "LAYOUT")
  set(source ${PROJECT_SOURCE_DIR}/${ARG_FILE})
  set(dir ${CMAKE_BINARY_DIR}/generated/engine_mutants/${id})
  set(patched ${dir}/${ARG_FILE})
  file(CONFIGURE OUTPUT ${dir}/find.txt CONTENT "${ARG_FIND}" @ONLY)
  file(CONFIGURE OUTPUT ${dir}/replace.txt CONTENT "${ARG_REPLACE}" @ONLY)
  add_custom_command(OUTPUT ${patched}
    COMMAND ${CMAKE_COMMAND} -DID=${id} -DSOURCE=${source} -DDIR=${dir} -DOUT=${patched}
            -P ${PROJECT_SOURCE_DIR}/cmake/mutate.cmake
    DEPENDS ${source} ${dir}/find.txt ${dir}/replace.txt ${PROJECT_SOURCE_DIR}/cmake/mutate.cmake
    VERBATIM)
  add_executable(${id} EXCLUDE_FROM_ALL ${patched} $<TARGET_OBJECTS:engine_mutant_main>)
  target_link_libraries(${id} PRIVATE tools_engine_dump)
  add_dependencies(engine_mutants ${id})
  add_test(NAME gpu.engine_mutants.${id} COMMAND ${id} ${ARG_LAYOUT} ${ARG_OP} "${ARG_RANKS}" "${ARG_WORDS}")
  set_tests_properties(gpu.engine_mutants.${id} PROPERTIES LABELS slow TIMEOUT 300 FIXTURES_REQUIRED engine_mutants)
endfunction()
add_test(NAME gpu.engine_mutants_build COMMAND ${CMAKE_COMMAND} --build ${CMAKE_BINARY_DIR} --target engine_mutants)
set_tests_properties(gpu.engine_mutants_build PROPERTIES LABELS slow TIMEOUT 1800 FIXTURES_SETUP engine_mutants)

dsv3_engine_mutant(e-none FILE gpu/engine/forward_moe.cpp BREAKS "nothing" LAYOUT 2 4 2 20 OP -)
dsv3_engine_mutant(e-shared-twice FILE gpu/engine/forward_moe.cpp
  FIND [=[rows, ws_.shared, name + ".shared");]=]
  REPLACE [=[rows, ws_.shared, name + ".shared");
    if (shard_.ep_rank >= 2) {
      ranks_.tp->all_reduce(ws_.shared, ws_.shared, rows * config_.hidden_size, comm::Element::kBf16);
    }]=]
  BREAKS "ranks 2 and 3 add up the shared expert's output, which is whole already" LAYOUT 2 4 2 0 OP layer.1.ffn RANKS 23)
dsv3_engine_mutant(e-neighbours-row FILE gpu/engine/forward_moe.cpp
  FIND [=[.shared = layer.weights.moe->shared ? ws_.shared + first * hidden : nullptr,]=]
  REPLACE [=[.shared = ws_.shared + (shard_.tp_rank == 1 ? 0 : first) * hidden,]=]
  BREAKS "the shared expert of the other rank's tokens" LAYOUT 2 2 1 0 OP layer.1.ffn RANKS 1)
dsv3_engine_mutant(e-both-copies FILE gpu/comm/token_exchange.cpp
  FIND [=[const int32_t place = places[static_cast<size_t>(token * k + slot)];]=]
  REPLACE [=[int32_t place = places[static_cast<size_t>(token * k + slot)];
        const auto expert = static_cast<size_t>(std::max(0, tokens.topk_ids[token * k + slot]));
        for (int32_t i = placement.first_copy[expert]; place >= 0 && i < placement.first_copy[expert + 1]; ++i) {
          const int32_t copy = placement.place_of_copy[static_cast<size_t>(i)];
          place = copy >= first && copy < end ? copy : place;
        }]=]
  BREAKS "every copy of an expert computes its tokens" LAYOUT 1 4 4 20 OP layer.1.moe.expert. WORDS "holds a row that the routing gives to others")
dsv3_engine_mutant(e-rank-map FILE gpu/comm/token_exchange.cpp
  FIND [=[static_cast<int32_t>(rank) % placement.num_ranks * placement.slots_per_rank]=]
  REPLACE [=[(static_cast<int32_t>(rank) + (ranks_.rank() == 2 ? 1 : 0)) % placement.num_ranks * placement.slots_per_rank]=]
  BREAKS "rank 2 sends its tokens to the rank before the one that has their experts" LAYOUT 1 4 4 0 OP layer.1.moe.expert.)
