# One-line faults of kernels, and what the verifier has to say about each (cmake/mutant.cmake, kernel_mutants_test.cpp). The first ones
# are built with the other tests, those below for the label slow. dsv3-verify's own are in tools/CMakeLists.txt.

set(test gpu.kernel_mutants_test)
dsv3_kernel_mutant(${test} ID k-none-rms-norm KERNEL rms_norm BREAKS "nothing" CASES nano)
dsv3_kernel_mutant(${test} ID k-embed-next KERNEL embed
  FIND [=[static_cast<int64_t>(row_id) * arguments.hidden]=] REPLACE [=[static_cast<int64_t>(row_id > 0 ? row_id - 1 : row_id) * arguments.hidden]=]
  BREAKS "the embedding of a neighbouring token" OP p5/embed CASES nano)
dsv3_kernel_mutant(${test} ID k-rotate-sign KERNEL rotate_query HEADER rotate.cuh
  FIND [=[-multiply(x1, sine)]=] REPLACE [=[multiply(x1, sine)]=]
  BREAKS "the sine with the wrong sign" OP p5/layer.0.attn.q_rope CASES nano)
dsv3_kernel_mutant(${test} ID k-cache-position KERNEL cache_latent
  FIND [=[position = arguments.positions[token];]=] REPLACE [=[position = token;]=]
  BREAKS "a key rotated by its row, not its position" OP p5/mtp.0.layer.attn.k_rope CASES nano)
dsv3_kernel_mutant(${test} ID k-router-group KERNEL router
  FIND [=[GroupScore::kTopTwo ? add(first, second) : first]=] REPLACE [=[GroupScore::kTopTwo ? first : first]=]
  BREAKS "a group judged by its best expert alone" OP p5/layer.1.moe.group_ids CASES nano)
dsv3_kernel_mutant(${test} ID k-combine-slot KERNEL combine
  FIND [=[shared.weights[place] =]=] REPLACE [=[shared.weights[thread] =]=]
  BREAKS "weights by slot for rows by expert" OP p5/layer.1.ffn CASES nano)
dsv3_kernel_mutant_table(${test} test_mutants)

set(test gpu.kernel_mutants_slow_test)
foreach(kernel align bf16_linear cache_latent combine embed expanded_attention fp8_linear fp8_linear_sm90 gather_latent
    latent_attention pack_rows quantize_rows router swiglu)
  string(REPLACE "_" "-" id ${kernel})
  dsv3_kernel_mutant(${test} ID k-none-${id} KERNEL ${kernel} BREAKS "nothing" CASES nano)
endforeach()
dsv3_kernel_mutant(${test} ID k-none-rotate-query KERNEL rotate_query HEADER rotate.cuh BREAKS "nothing" CASES nano)

# Values.
dsv3_kernel_mutant(${test} ID k-rms-norm-epsilon KERNEL rms_norm
  FIND [=[square_root(add(mean, arguments.epsilon))]=] REPLACE [=[square_root(mean)]=]
  BREAKS "epsilon left out" OP p4/layer.0.attn_norm CASES edge)
dsv3_kernel_mutant(${test} ID k-rms-norm-residual KERNEL rms_norm
  FIND [=[residual.at[i] = to_half16(x[v][i]);]=] REPLACE [=[residual.at[i] = mine.at[i];]=]
  BREAKS "the residual stream loses what was there" OP p5/layer.0.attn_residual CASES nano)
dsv3_kernel_mutant(${test} ID k-quantize-scale-row KERNEL rms_norm
  FIND [=[* arguments.scale_stride + token] = scale;]=] REPLACE [=[* arguments.scale_stride + (token ^ 1)] = scale;]=]
  BREAKS "scales of a neighbouring token" OP p6/layer.0.attn.q_a CASES even)
dsv3_kernel_mutant(${test} ID k-quantize-amax KERNEL quantize_rows FILE quantize_block.cuh
  FIND [=[group_max(amax, kLanesPerBlock)]=] REPLACE [=[group_max(amax, kLanesPerBlock / 2)]=]
  BREAKS "the largest of half a block" OP p5/layer.0.attn.o_proj CASES nano)
dsv3_kernel_mutant(${test} ID k-swiglu-up KERNEL swiglu
  FIND [=[load_vector<kVectorLen>(gate + arguments.dim + column)]=] REPLACE [=[load_vector<kVectorLen>(gate + column)]=]
  BREAKS "the gate in place of up" OP p5/layer.0.mlp.act CASES nano)
dsv3_kernel_mutant(${test} ID k-rotate-pair KERNEL rotate_query HEADER rotate.cuh
  FIND [=[const float x1 = to_float(x.at[2 * (pair + i) + 1]);]=] REPLACE [=[const float x1 = to_float(x.at[2 * (pair + i)]);]=]
  BREAKS "both halves of a pair the same number" OP p5/layer.0.attn.q_rope CASES nano)
dsv3_kernel_mutant(${test} ID k-cache-gain KERNEL cache_latent
  FIND [=[load_vector<kVectorLen>(arguments.gain + column)]=] REPLACE [=[load_vector<kVectorLen>(arguments.gain)]=]
  BREAKS "the first gains for all columns" OP p5/layer.0.attn.kv_a_norm CASES nano)
dsv3_kernel_mutant(${test} ID k-router-bias KERNEL router
  FIND [=[divide(shared.scores[shared.chosen[thread]], denominator)]=] REPLACE [=[divide(shared.biased[shared.chosen[thread]], denominator)]=]
  BREAKS "the bias in the weights" OP p5/layer.1.moe.topk_weights CASES nano)
dsv3_kernel_mutant(${test} ID k-router-masked KERNEL router
  FIND [=[      shared.biased[e] = -INFINITY;]=] REPLACE [=[      shared.biased[e] = 0;]=]
  BREAKS "experts outside the kept groups at 0" OP p4/layer.1.moe.topk_ids CASES edge)
dsv3_kernel_mutant(${test} ID k-router-scaling KERNEL router
  FIND [=[denominator), arguments.scaling_factor);]=] REPLACE [=[denominator), 1);]=]
  BREAKS "the scaling factor left out" OP p5/layer.1.moe.topk_weights CASES nano)
dsv3_kernel_mutant(${test} ID k-align-row KERNEL align
  FIND [=[static_cast<int32_t>(expert * arguments.num_tokens + row);]=] REPLACE [=[static_cast<int32_t>(expert * arguments.num_tokens);]=]
  BREAKS "all tokens of an expert in its first row" OP p5/layer.1.moe.expert.*.gate CASES nano)
dsv3_kernel_mutant(${test} ID k-combine-shared KERNEL combine
  FIND [=[arguments.shared + first : nullptr]=] REPLACE [=[arguments.shared : nullptr]=]
  BREAKS "the first token's shared expert for all" OP p5/layer.1.ffn CASES nano)
dsv3_kernel_mutant(${test} ID k-fp8-linear-scale KERNEL fp8_linear
  FIND [=[weight_scale[block]);]=] REPLACE [=[weight_scale[0]);]=]
  BREAKS "the first block's weight scale for all of K" OP d0/layer.0.attn.q_a CASES nano)
dsv3_kernel_mutant(${test} ID k-fp8-linear-order KERNEL fp8_linear
  FIND [=[multiply(products[0][n].at[i], scales[i % 2])]=] REPLACE [=[multiply(products[0][n].at[i], scales[i / 2])]=]
  BREAKS "scales of a fragment's rows, not its columns" OP d0/layer.0.attn.q_a CASES nano)
dsv3_kernel_mutant(${test} ID k-linear-pieces KERNEL fp8_linear FILE linear_tile.cuh
  FIND [=[for (int piece = begin; piece < end; ++piece) {]=] REPLACE [=[for (int piece = begin; piece + 1 < end; ++piece) {]=]
  BREAKS "the last piece of K left out" OP d0/layer.0.attn.q_a CASES nano)
dsv3_kernel_mutant(${test} ID k-linear-wait KERNEL fp8_linear FILE linear_tile.cuh
  FIND [=[wait_copies<kLinearStages - 2>();]=] REPLACE [=[wait_copies<kLinearStages - 1>();]=]
  BREAKS "one copy too few waited for" OP d0/layer.0.attn.q_a CASES nano)
dsv3_kernel_mutant(${test} ID k-linear-operand KERNEL fp8_linear FILE linear_tile.cuh
  FIND [=[swizzled(token, 2 * step + lane / 8 % 2)]=] REPLACE [=[swizzled(token, 2 * step + lane / 16)]=]
  BREAKS "operands in another layout than the instruction's" OP d0/layer.0.attn.q_a CASES nano)
dsv3_kernel_mutant(${test} ID k-linear-arrivals KERNEL fp8_linear FILE linear_tile.cuh
  FIND [=[atomic_add(arrivals, -splits.num_splits);]=] REPLACE [=[atomic_add(arrivals, 0);]=]
  BREAKS "arrivals that the next launch finds" OP d1/layer.0.ffn CASES par)
dsv3_kernel_mutant(${test} ID k-linear-partial KERNEL fp8_linear FILE linear_tile.cuh
  FIND [=[other < splits.num_splits; ++other]=] REPLACE [=[other < splits.num_splits - 1; ++other]=]
  BREAKS "the last split never added" OP d0/layer.0.attn.q_a CASES splits)
dsv3_kernel_mutant(${test} ID k-linear-tree KERNEL fp8_linear FILE linear_tile.cuh
  FIND [=[tree_sum(splits.num_splits, of_split)]=] REPLACE [=[tree_sum(1, of_split)]=]
  BREAKS "the first part of a tree alone" OP d0/layer.0.ffn CASES par)
dsv3_kernel_mutant(${test} ID k-sm90-scale KERNEL fp8_linear_sm90
  FIND [=[x_scale_stride + row], weight_scale[block]);]=] REPLACE [=[x_scale_stride + row], weight_scale[0]);]=]
  BREAKS "the first block's weight scale for all of K" OP p5/layer.0.attn.q_a CASES nano)
dsv3_kernel_mutant(${test} ID k-sm90-promotion KERNEL fp8_linear_sm90
  FIND [=[fused_multiply_add(scales[i % 4 / 2], product[i], total[i])]=] REPLACE [=[fused_multiply_add(scales[i % 2], product[i], total[i])]=]
  BREAKS "scales of a fragment's columns, not its rows" OP p5/layer.0.attn.q_a CASES nano)
dsv3_kernel_mutant(${test} ID k-sm90-parts KERNEL fp8_linear_sm90
  FIND [=[block / part_len, block + 1 == num_blocks]=] REPLACE [=[0, block + 1 == num_blocks]=]
  BREAKS "parts of K that overwrite one another" OP p5/layer.0.ffn CASES nano)
dsv3_kernel_mutant(${test} ID k-sm90-group KERNEL fp8_linear_sm90
  FIND [=[group * arguments.out_dim + first_row, shared.full[stage]]=] REPLACE [=[first_row, shared.full[stage]]=]
  BREAKS "the first expert's weight for all" OP p5/layer.1.moe.expert.*.gate CASES nano)
dsv3_kernel_mutant(${test} ID k-sm90-rows KERNEL fp8_linear_sm90
  FIND [=[num_rows = arguments.rows_of_tile[block_idx().y];]=] REPLACE [=[num_rows = arguments.rows_of_tile[block_idx().y] - 1;]=]
  BREAKS "the last row of each expert left out" OP p5/layer.1.moe.expert.*.gate CASES nano)
dsv3_kernel_mutant(${test} ID k-pack-codes KERNEL pack_rows
  FIND [=[arguments.codes + token * arguments.hidden + column]=] REPLACE [=[arguments.codes + column]=]
  BREAKS "the first token for all" OP p5/layer.1.moe.expert.*.gate CASES nano)
dsv3_kernel_mutant(${test} ID k-pack-scales KERNEL pack_rows
  FIND [=[arguments.scales[block * arguments.num_tokens + token]]=] REPLACE [=[arguments.scales[token]]=]
  BREAKS "the first block's scale for all of K" OP p5/layer.1.moe.expert.*.gate CASES nano)
dsv3_kernel_mutant(${test} ID k-bf16-linear-head KERNEL bf16_linear
  FIND [=[arguments.weight + batch * arguments.out_dim * arguments.in_dim]=] REPLACE [=[arguments.weight]=]
  BREAKS "the first head's weight for all" OP d0/layer.0.attn.q_latent CASES nano)
dsv3_kernel_mutant(${test} ID k-latent-causal KERNEL latent_attention
  FIND [=[key <= num_keys - num_new + token]=] REPLACE [=[key < num_keys - num_new + token]=]
  BREAKS "a token that does not see itself" OP d0/layer.0.attn.o_latent CASES nano)
dsv3_kernel_mutant(${test} ID k-latent-page KERNEL latent_attention
  FIND [=[% kAttentionStages, pages[page],]=] REPLACE [=[% kAttentionStages, pages[first_page],]=]
  BREAKS "the first page for all" OP d0/layer.0.attn.o_latent CASES long)
dsv3_kernel_mutant(${test} ID k-latent-rescale KERNEL latent_attention
  FIND [=[sum[half] = multiply(sum[half], factor[half]);]=] REPLACE [=[sum[half] = multiply(sum[half], 1);]=]
  BREAKS "a sum that is not scaled down when a larger score comes" OP d0/layer.0.attn.o_latent CASES long)
dsv3_kernel_mutant(${test} ID k-latent-scale KERNEL latent_attention
  FIND [=[multiply(scores[0][0].at[i], arguments.scale)]=] REPLACE [=[scores[0][0].at[i]]=]
  BREAKS "scores without their scale" OP d0/layer.0.attn.o_latent CASES nano)
dsv3_kernel_mutant(${test} ID k-expanded-causal KERNEL expanded_attention
  FIND [=[row <= first_visible + query]=] REPLACE [=[row <= first_visible + query + 1]=]
  BREAKS "a token that sees the next one" OP p5/layer.0.attn.context CASES nano)
dsv3_kernel_mutant(${test} ID k-expanded-rescale KERNEL expanded_attention FILE attention_tiles.cuh
  FIND [=[multiply(o[chunk][0][n].at[i], factor[i / 2])]=] REPLACE [=[multiply(o[chunk][0][n].at[i], factor[i % 2])]=]
  BREAKS "values scaled down by another row's factor" OP p120/layer.0.attn.context CASES long)
dsv3_kernel_mutant(${test} ID k-expanded-head KERNEL expanded_attention
  FIND [=[(row * heads + head) * (arguments.nope + arguments.v)]=] REPLACE [=[(row * heads) * (arguments.nope + arguments.v)]=]
  BREAKS "the first head's keys and values for all" OP p5/layer.0.attn.context CASES nano)
dsv3_kernel_mutant(${test} ID k-gather-scale KERNEL gather_latent
  FIND [=[* arguments.scale_stride + row] = scale;]=] REPLACE [=[* arguments.scale_stride + row] = 2 * scale;]=]
  BREAKS "scales twice as large as the codes want them" OP p5/layer.0.attn.kv_b CASES nano)

# Synchronisation.
dsv3_kernel_mutant(${test} RACE ID k-router-barrier KERNEL router
  FIND [=[      arguments.topk_ids[token * arguments.k + place] = e;
    }
  }
  sync_threads();
]=] REPLACE [=[      arguments.topk_ids[token * arguments.k + place] = e;
    }
  }
]=]
  BREAKS "no barrier between those who choose experts and those who read them" CASES nano)
dsv3_kernel_mutant(${test} RACE ID k-pack-barrier KERNEL pack_rows
  FIND [=[  sync_threads();]=] REPLACE ""
  BREAKS "no barrier between those who place a token's rows and those who copy them" CASES nano)
dsv3_kernel_mutant(${test} RACE ID k-linear-barrier KERNEL fp8_linear FILE linear_tile.cuh
  FIND [=[    sync_threads();  // the piece is everybody's]=] REPLACE [=[    // the piece is everybody's]=]
  BREAKS "no barrier between those who copy a piece and those who multiply it" CASES nano)
dsv3_kernel_mutant(${test} RACE ID k-linear-fence-before KERNEL fp8_linear FILE linear_tile.cuh
  FIND [=[    thread_fence();  // the block's]=] REPLACE [=[    // the block's]=]
  BREAKS "no fence between partial sums and the arrival that announces them" CASES par)
dsv3_kernel_mutant(${test} RACE ID k-linear-fence-after KERNEL fp8_linear FILE linear_tile.cuh
  FIND [=[    thread_fence();  // the others']=] REPLACE [=[    // the others']=]
  BREAKS "no fence between the last arrival and the others' partial sums" CASES par)
dsv3_kernel_mutant(${test} RACE ID k-latent-barrier-scores KERNEL latent_attention
  FIND [=[    sync_threads();
    float factor[2];]=] REPLACE [=[    float factor[2];]=]
  BREAKS "no barrier between the warps' largest scores and their readers" CASES nano)
dsv3_kernel_mutant(${test} RACE ID k-latent-barrier-weights KERNEL latent_attention
  FIND [=[    sync_threads();
    FragmentA p[kPieceSteps][1];]=] REPLACE [=[    FragmentA p[kPieceSteps][1];]=]
  BREAKS "no barrier between the weights and the product that reads them" CASES nano)
dsv3_kernel_mutant(${test} RACE ID k-expanded-barrier KERNEL expanded_attention
  FIND [=[    sync_threads();
    issue(block + 1);]=] REPLACE [=[    issue(block + 1);]=]
  BREAKS "no barrier between those who copy keys and those who multiply them" CASES nano)
dsv3_kernel_mutant_table(${test} test_mutants)
