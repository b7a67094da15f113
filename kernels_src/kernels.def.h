/* kernels.def.h: the list of all kernels. The backend's tables, the builds and the tests are made from this list.
   takes: nothing.
   gives: EXL2__KERNELS(X): X(function, module file, argument struct, dynamic shared memory).

   The modules that compile longest come first, so that threads that share them end together.
   Dynamic shared memory is NONE, or BUDGET: the backend computes its size, up to the GPU's shared_bytes_max.
   Modules whose names have "_wg" exist for sm_90a only (exl2__cuda_module_exists). Those of the folder `convert` exist
   only where EXL2_CONVERT is defined. */
#ifndef EXL2K_KERNELS_DEF_H
#define EXL2K_KERNELS_DEF_H

#define EXL2__KERNELS_MODEL(X)                                                  \
    X(exl2k_gemm_wg256, "gemm_wg256.cu", exl2k_gemm_args, BUDGET)               \
    X(exl2k_gemm_wg256_lora, "gemm_wg256_lora.cu", exl2k_gemm_lora_args, BUDGET)\
    X(exl2k_gemm_wg256_any, "gemm_wg256_any.cu", exl2k_gemm_args, BUDGET)       \
    X(exl2k_gemm_wg256_any_lora, "gemm_wg256_any_lora.cu", exl2k_gemm_lora_args, BUDGET)\
    X(exl2k_gemm_wg256_affine, "gemm_wg256_affine.cu", exl2k_gemm_args, BUDGET) \
    X(exl2k_gemm_wg256_affine_lora, "gemm_wg256_affine_lora.cu", exl2k_gemm_lora_args, BUDGET)\
    X(exl2k_gemv16, "gemv16.cu", exl2k_gemv_args, BUDGET)                       \
    X(exl2k_gemv16_head, "gemv16_head.cu", exl2k_gemv_args, BUDGET)             \
    X(exl2k_gemm_wg128, "gemm_wg128.cu", exl2k_gemm_args, BUDGET)               \
    X(exl2k_gemm_wg128_lora, "gemm_wg128_lora.cu", exl2k_gemm_lora_args, BUDGET)\
    X(exl2k_gemm_wg128_any, "gemm_wg128_any.cu", exl2k_gemm_args, BUDGET)       \
    X(exl2k_gemm_wg128_any_lora, "gemm_wg128_any_lora.cu", exl2k_gemm_lora_args, BUDGET)\
    X(exl2k_gemm_wg128_affine, "gemm_wg128_affine.cu", exl2k_gemm_args, BUDGET) \
    X(exl2k_gemm_wg128_affine_lora, "gemm_wg128_affine_lora.cu", exl2k_gemm_lora_args, BUDGET)\
    X(exl2k_gemv1, "gemv1.cu", exl2k_gemv_args, BUDGET)                         \
    X(exl2k_gemv1_large, "gemv1_large.cu", exl2k_gemv_args, BUDGET)             \
    X(exl2k_gemv1_any, "gemv1_any.cu", exl2k_gemv_args, BUDGET)                 \
    X(exl2k_gemv1_affine, "gemv1_affine.cu", exl2k_gemv_args, BUDGET)           \
    X(exl2k_gemv8, "gemv8.cu", exl2k_gemv_args, BUDGET)                         \
    X(exl2k_gemv8_large, "gemv8_large.cu", exl2k_gemv_args, BUDGET)             \
    X(exl2k_gemv8_head, "gemv8_head.cu", exl2k_gemv_args, BUDGET)               \
    X(exl2k_gemv8_any, "gemv8_any.cu", exl2k_gemv_args, BUDGET)                 \
    X(exl2k_gemv8_affine, "gemv8_affine.cu", exl2k_gemv_args, BUDGET)           \
    X(exl2k_gemv16_affine, "gemv16_affine.cu", exl2k_gemv_args, BUDGET)         \
    X(exl2k_gemv1_large_lora, "gemv1_large_lora.cu", exl2k_lora_gemv_args, BUDGET)\
    X(exl2k_gemv1_any_lora, "gemv1_any_lora.cu", exl2k_lora_gemv_args, BUDGET)  \
    X(exl2k_gemv1_affine_lora, "gemv1_affine_lora.cu", exl2k_lora_gemv_args, BUDGET)\
    X(exl2k_gemv8_large_lora, "gemv8_large_lora.cu", exl2k_lora_gemv_args, BUDGET)\
    X(exl2k_gemv8_any_lora, "gemv8_any_lora.cu", exl2k_lora_gemv_args, BUDGET)  \
    X(exl2k_gemv8_affine_lora, "gemv8_affine_lora.cu", exl2k_lora_gemv_args, BUDGET)\
    X(exl2k_gemv1_peers, "gemv1_peers.cu", exl2k_peers_gemv_args, BUDGET)       \
    X(exl2k_gemv1_large_peers, "gemv1_large_peers.cu", exl2k_peers_gemv_args, BUDGET)\
    X(exl2k_gemv16_peers, "gemv16_peers.cu", exl2k_peers_gemv_args, BUDGET)     \
    X(exl2k_gemv8_peers, "gemv8_peers.cu", exl2k_peers_gemv_args, BUDGET)       \
    X(exl2k_gemv8_large_peers, "gemv8_large_peers.cu", exl2k_peers_gemv_args, BUDGET)\
    X(exl2k_gemv16_steer, "gemv16_steer.cu", exl2k_gemv_args, BUDGET)           \
    X(exl2k_gemv1_steer, "gemv1_steer.cu", exl2k_gemv_args, BUDGET)             \
    X(exl2k_gemv8_steer, "gemv8_steer.cu", exl2k_gemv_args, BUDGET)             \
    X(exl2k_gemv1_large_steer, "gemv1_large_steer.cu", exl2k_gemv_args, BUDGET) \
    X(exl2k_gemv1_any_steer, "gemv1_any_steer.cu", exl2k_gemv_args, BUDGET)     \
    X(exl2k_gemv1_affine_steer, "gemv1_affine_steer.cu", exl2k_gemv_args, BUDGET)\
    X(exl2k_gemv8_large_steer, "gemv8_large_steer.cu", exl2k_gemv_args, BUDGET) \
    X(exl2k_gemv8_any_steer, "gemv8_any_steer.cu", exl2k_gemv_args, BUDGET)     \
    X(exl2k_gemv8_affine_steer, "gemv8_affine_steer.cu", exl2k_gemv_args, BUDGET)\
    X(exl2k_sample_keys, "sample.cu", exl2k_sample_args, NONE)                  \
    X(exl2k_sample_token, "sample.cu", exl2k_sample_args, NONE)                 \
    X(exl2k_gemm, "gemm.cu", exl2k_gemm_args, BUDGET)                           \
    X(exl2k_gemm_any, "gemm_any.cu", exl2k_gemm_args, BUDGET)                   \
    X(exl2k_gemm_affine, "gemm_affine.cu", exl2k_gemm_args, BUDGET)             \
    X(exl2k_gemm_wg32, "gemm_wg32.cu", exl2k_gemm_args, BUDGET)                 \
    X(exl2k_gemm_wg32_affine, "gemm_wg32_affine.cu", exl2k_gemm_args, BUDGET)   \
    X(exl2k_gemm_wg64, "gemm_wg64.cu", exl2k_gemm_args, BUDGET)                 \
    X(exl2k_gemm_wg16_roles, "gemm_wg16_roles.cu", exl2k_gemm_args, BUDGET)     \
    X(exl2k_gemm_wg32_roles, "gemm_wg32_roles.cu", exl2k_gemm_args, BUDGET)     \
    X(exl2k_gemm_wg64_roles, "gemm_wg64_roles.cu", exl2k_gemm_args, BUDGET)     \
    X(exl2k_gemm_wg64_lora, "gemm_wg64_lora.cu", exl2k_gemm_lora_args, BUDGET)  \
    X(exl2k_gemm_wg64_any, "gemm_wg64_any.cu", exl2k_gemm_args, BUDGET)         \
    X(exl2k_gemm_wg64_any_lora, "gemm_wg64_any_lora.cu", exl2k_gemm_lora_args, BUDGET)\
    X(exl2k_gemm_wg64_affine, "gemm_wg64_affine.cu", exl2k_gemm_args, BUDGET)   \
    X(exl2k_gemm_wg64_affine_lora, "gemm_wg64_affine_lora.cu", exl2k_gemm_lora_args, BUDGET)\
    X(exl2k_probe_read, "probe.cu", exl2k_probe_args, NONE)                     \
    X(exl2k_shuffle_codes, "shuffle.cu", exl2k_shuffle_args, NONE)              \
    X(exl2k_shuffle_dense, "shuffle.cu", exl2k_shuffle_args, NONE)              \
    X(exl2k_shuffle_scales, "shuffle.cu", exl2k_shuffle_args, NONE)             \
    X(exl2k_shuffle_affine, "shuffle.cu", exl2k_shuffle_args, NONE)             \
    X(exl2k_wg_order, "gemm_wg_order.cu", exl2k_wg_order_args, BUDGET)          \
    X(exl2k_grouped_sort, "grouped_rows.cu", exl2k_grouped_sort_args, NONE)     \
    X(exl2k_grouped_gather, "grouped_rows.cu", exl2k_grouped_gather_args, BUDGET) \
    X(exl2k_grouped_gemm, "grouped_gemm.cu", exl2k_grouped_gemm_args, BUDGET)   \
    X(exl2k_grouped_gemm32, "grouped_gemm32.cu", exl2k_grouped_gemm_args, BUDGET) \
    X(exl2k_grouped_gemm_affine, "grouped_gemm_affine.cu", exl2k_grouped_gemm_args, BUDGET) \
    X(exl2k_grouped_sum, "grouped_rows.cu", exl2k_grouped_sum_args, NONE)       \
    X(exl2k_tower_attend32, "tower_attend.cu", exl2k_tower_attend_args, NONE)   \
    X(exl2k_tower_attend64, "tower_attend.cu", exl2k_tower_attend_args, NONE)   \
    X(exl2k_tower_attend80, "tower_attend.cu", exl2k_tower_attend_args, NONE)   \
    X(exl2k_tower_attend128, "tower_attend.cu", exl2k_tower_attend_args, NONE)  \
    X(exl2k_tower_attend_wg64, "tower_attend_wg.cu", exl2k_tower_attend_args, BUDGET) \
    X(exl2k_tower_attend_wg80, "tower_attend_wg.cu", exl2k_tower_attend_args, BUDGET) \
    X(exl2k_tower_wg_pair, "tower_wg.cu", exl2k_tower_product_args, BUDGET)     \
    X(exl2k_tower_wg_narrow, "tower_wg.cu", exl2k_tower_product_args, BUDGET)   \
    X(exl2k_tower_product, "tower_product.cu", exl2k_tower_product_args, BUDGET) \
    X(exl2k_tower_weights, "tower.cu", exl2k_tower_weights_args, NONE)          \
    X(exl2k_tower_patches, "tower.cu", exl2k_tower_patches_args, NONE)          \
    X(exl2k_tower_norm, "tower.cu", exl2k_tower_norm_args, NONE)                \
    X(exl2k_tower_merge, "tower.cu", exl2k_tower_merge_args, NONE)              \
    X(exl2k_tower_check, "tower.cu", exl2k_tower_check_args, NONE)              \
    X(exl2k_tower_add, "tower.cu", exl2k_tower_add_args, NONE)                  \
    X(exl2k_embed, "embed.cu", exl2k_embed_args, NONE)                          \
    X(exl2k_norm, "norm.cu", exl2k_norm_args, NONE)                             \
    X(exl2k_rope_table, "norm.cu", exl2k_rope_args, NONE)                       \
    X(exl2k_settle, "settle.cu", exl2k_settle_args, NONE)                       \
    X(exl2k_settle_steer, "settle.cu", exl2k_settle_args, NONE)                 \
    X(exl2k_steer_fill, "steer.cu", exl2k_steer_args, NONE)                     \
    X(exl2k_steer_add, "steer.cu", exl2k_steer_args, NONE)                      \
    X(exl2k_meet, "meet.cu", exl2k_meet_args, NONE)                             \
    X(exl2k_meet_norm, "meet.cu", exl2k_meet_norm_args, NONE)                   \
    X(exl2k_route_one, "expert_route.cu", exl2k_route_one_args, BUDGET)         \
    X(exl2k_route_many, "expert_route.cu", exl2k_route_args, NONE)              \
    X(exl2k_route_choose, "expert_route.cu", exl2k_route_choose_args, BUDGET)   \
    X(exl2k_expert_gather, "expert_gather.cu", exl2k_expert_gather_args, BUDGET) \
    X(exl2k_expert_switch, "expert_gather.cu", exl2k_expert_switch_args, NONE)  \
    X(exl2k_expert1, "expert1.cu", exl2k_expert_args, BUDGET)                   \
    X(exl2k_expert8, "expert8.cu", exl2k_expert_args, BUDGET)                   \
    X(exl2k_expert1_affine, "expert1_affine.cu", exl2k_expert_args, BUDGET)     \
    X(exl2k_expert8_affine, "expert8_affine.cu", exl2k_expert_args, BUDGET)     \
    X(exl2k_expert1_steer, "expert1_steer.cu", exl2k_expert_args, BUDGET)       \
    X(exl2k_expert8_steer, "expert8_steer.cu", exl2k_expert_args, BUDGET)       \
    X(exl2k_expert1_affine_steer, "expert1_affine_steer.cu", exl2k_expert_args, BUDGET)\
    X(exl2k_expert8_affine_steer, "expert8_affine_steer.cu", exl2k_expert_args, BUDGET)\
    X(exl2k_gather, "gather.cu", exl2k_gather_args, NONE)                       \
    X(exl2k_act_mul, "gather.cu", exl2k_act_mul_args, NONE)                     \
    X(exl2k_lora_rows_t, "lora_rows.cu", exl2k_lora_rows_args, NONE)            \
    X(exl2k_lora_rows_add, "lora_rows.cu", exl2k_lora_rows_args, NONE)          \
    X(exl2k_lora_rows_act, "lora_rows.cu", exl2k_lora_rows_args, NONE)          \
    X(exl2k_lora_wg_t16, "lora_wg.cu", exl2k_lora_wg_args, NONE)                \
    X(exl2k_lora_wg_t32, "lora_wg.cu", exl2k_lora_wg_args, NONE)                \
    X(exl2k_lora_wg_t64, "lora_wg.cu", exl2k_lora_wg_args, NONE)                \
    X(exl2k_lora_experts_t, "lora_experts.cu", exl2k_lora_experts_args, NONE)   \
    X(exl2k_lora_experts_up, "lora_experts.cu", exl2k_lora_experts_args, NONE)  \
    X(exl2k_lora_experts_down, "lora_experts.cu", exl2k_lora_experts_args, NONE)\
    X(exl2k_copy_pages, "copy.cu", exl2k_copy_args, NONE)                       \
    X(exl2k_head_rows, "copy.cu", exl2k_head_rows_args, NONE)                   \
    X(exl2k_attend_prepare, "attend_prepare.cu", exl2k_prepare_args, NONE)      \
    X(exl2k_attend_turn, "attend_turn.cu", exl2k_turn_args, NONE)               \
    X(exl2k_attend_store, "attend_store.cu", exl2k_attend_args, NONE)           \
    X(exl2k_attend_store_queries, "attend_store.cu", exl2k_attend_args, NONE)   \
    X(exl2k_attend_permute, "attend_store.cu", exl2k_attend_args, NONE)         \
    X(exl2k_attend_decode64, "attend_decode64.cu", exl2k_attend_args, BUDGET)   \
    X(exl2k_attend_decode128, "attend_decode128.cu", exl2k_attend_args, BUDGET) \
    X(exl2k_attend_decode256, "attend_decode256.cu", exl2k_attend_args, BUDGET) \
    X(exl2k_attend_decode_crowd128, "attend_decode_crowd128.cu", exl2k_attend_args, BUDGET) \
    X(exl2k_attend_decode_few64, "attend_decode_few64.cu", exl2k_attend_args, BUDGET) \
    X(exl2k_attend_decode_few128, "attend_decode_few128.cu", exl2k_attend_args, BUDGET) \
    X(exl2k_attend_decode_few256, "attend_decode_few256.cu", exl2k_attend_args, BUDGET) \
    X(exl2k_attend_codes64, "attend_codes64.cu", exl2k_attend_args, BUDGET)     \
    X(exl2k_attend_codes128, "attend_codes128.cu", exl2k_attend_args, BUDGET)   \
    X(exl2k_attend_codes256, "attend_codes256.cu", exl2k_attend_args, BUDGET)   \
    X(exl2k_attend_quantize, "attend_quantize.cu", exl2k_attend_args, NONE)     \
    X(exl2k_attend_expand, "attend_quantize.cu", exl2k_attend_args, NONE)       \
    X(exl2k_attend_prefill64, "attend_prefill64.cu", exl2k_attend_args, NONE)   \
    X(exl2k_attend_prefill128, "attend_prefill128.cu", exl2k_attend_args, NONE) \
    X(exl2k_attend_prefill256, "attend_prefill256.cu", exl2k_attend_args, NONE) \
    X(exl2k_attend_wg64, "attend_wg64.cu", exl2k_attend_args, BUDGET)           \
    X(exl2k_attend_wg128, "attend_wg128.cu", exl2k_attend_args, BUDGET)

#ifndef EXL2_NO_EXL3
#define EXL2__KERNELS_EXL3(X)                               \
    X(exl2k_exl3_wide, "exl3_wide_wg.cu", exl2k_exl3_args, BUDGET)              \
    X(exl2k_exl3_wg256_mul1, "exl3_wg_mul1.cu", exl2k_exl3_args, BUDGET)        \
    X(exl2k_exl3_wg128_mul1, "exl3_wg_mul1.cu", exl2k_exl3_args, BUDGET)        \
    X(exl2k_exl3_wg128_half_mul1, "exl3_wg_mul1.cu", exl2k_exl3_args, BUDGET)   \
    X(exl2k_exl3_strips_mul1, "exl3_wg_mul1.cu", exl2k_exl3_args, BUDGET)       \
    X(exl2k_exl3_wg256_mcg, "exl3_wg_mcg.cu", exl2k_exl3_args, BUDGET)          \
    X(exl2k_exl3_wg128_mcg, "exl3_wg_mcg.cu", exl2k_exl3_args, BUDGET)          \
    X(exl2k_exl3_wg128_half_mcg, "exl3_wg_mcg.cu", exl2k_exl3_args, BUDGET)     \
    X(exl2k_exl3_strips_mcg, "exl3_wg_mcg.cu", exl2k_exl3_args, BUDGET)         \
    X(exl2k_exl3_wg256_3inst, "exl3_wg_3inst.cu", exl2k_exl3_args, BUDGET)      \
    X(exl2k_exl3_wg128_3inst, "exl3_wg_3inst.cu", exl2k_exl3_args, BUDGET)      \
    X(exl2k_exl3_wg128_half_3inst, "exl3_wg_3inst.cu", exl2k_exl3_args, BUDGET) \
    X(exl2k_exl3_strips_3inst, "exl3_wg_3inst.cu", exl2k_exl3_args, BUDGET)     \
    X(exl2k_exl3_crowd32_mul1, "exl3_crowd_mul1.cu", exl2k_exl3_args, BUDGET)   \
    X(exl2k_exl3_crowd64_mul1, "exl3_crowd_mul1.cu", exl2k_exl3_args, BUDGET)   \
    X(exl2k_exl3_crowd8_mul1, "exl3_crowd16_mul1.cu", exl2k_exl3_args, BUDGET)  \
    X(exl2k_exl3_crowd16_mul1, "exl3_crowd16_mul1.cu", exl2k_exl3_args, BUDGET) \
    X(exl2k_exl3_gemm_mul1, "exl3_gemm_mul1.cu", exl2k_exl3_args, BUDGET)       \
    X(exl2k_exl3_settle, "exl3_settle.cu", exl2k_exl3_settle_args, NONE)        \
    X(exl2k_exl3_one_mul1, "exl3_one_mul1.cu", exl2k_exl3_args, BUDGET)         \
    X(exl2k_exl3_gemv8_mul1, "exl3_gemv_mul1.cu", exl2k_exl3_args, BUDGET)      \
    X(exl2k_exl3_gemv16_mul1, "exl3_gemv_mul1.cu", exl2k_exl3_args, BUDGET)     \
    X(exl2k_exl3_crowd32_mcg, "exl3_crowd_mcg.cu", exl2k_exl3_args, BUDGET)     \
    X(exl2k_exl3_crowd64_mcg, "exl3_crowd_mcg.cu", exl2k_exl3_args, BUDGET)     \
    X(exl2k_exl3_crowd8_mcg, "exl3_crowd16_mcg.cu", exl2k_exl3_args, BUDGET)    \
    X(exl2k_exl3_crowd16_mcg, "exl3_crowd16_mcg.cu", exl2k_exl3_args, BUDGET)   \
    X(exl2k_exl3_gemm_mcg, "exl3_gemm_mcg.cu", exl2k_exl3_args, BUDGET)         \
    X(exl2k_exl3_one_mcg, "exl3_one_mcg.cu", exl2k_exl3_args, BUDGET)           \
    X(exl2k_exl3_gemv8_mcg, "exl3_gemv_mcg.cu", exl2k_exl3_args, BUDGET)        \
    X(exl2k_exl3_gemv16_mcg, "exl3_gemv_mcg.cu", exl2k_exl3_args, BUDGET)       \
    X(exl2k_exl3_crowd32_3inst, "exl3_crowd_3inst.cu", exl2k_exl3_args, BUDGET) \
    X(exl2k_exl3_crowd64_3inst, "exl3_crowd_3inst.cu", exl2k_exl3_args, BUDGET) \
    X(exl2k_exl3_crowd8_3inst, "exl3_crowd16_3inst.cu", exl2k_exl3_args, BUDGET)\
    X(exl2k_exl3_crowd16_3inst, "exl3_crowd16_3inst.cu", exl2k_exl3_args, BUDGET)\
    X(exl2k_exl3_gemm_3inst, "exl3_gemm_3inst.cu", exl2k_exl3_args, BUDGET)     \
    X(exl2k_exl3_one_3inst, "exl3_one_3inst.cu", exl2k_exl3_args, BUDGET)       \
    X(exl2k_exl3_gemv8_3inst, "exl3_gemv_3inst.cu", exl2k_exl3_args, BUDGET)    \
    X(exl2k_exl3_gemv16_3inst, "exl3_gemv_3inst.cu", exl2k_exl3_args, BUDGET)   \
    X(exl2k_exl3_expert_wg_mul1, "exl3_expert_wg_mul1.cu", exl2k_exl3_expert_args, BUDGET) \
    X(exl2k_exl3_expert_gemm_mul1, "exl3_expert_gemm_mul1.cu", exl2k_exl3_expert_args, BUDGET) \
    X(exl2k_exl3_expert8_mul1, "exl3_expert_mul1.cu", exl2k_exl3_expert_args, BUDGET) \
    X(exl2k_exl3_expert16_mul1, "exl3_expert_mul1.cu", exl2k_exl3_expert_args, BUDGET) \
    X(exl2k_exl3_expert_wg_mcg, "exl3_expert_wg_mcg.cu", exl2k_exl3_expert_args, BUDGET) \
    X(exl2k_exl3_expert_gemm_mcg, "exl3_expert_gemm_mcg.cu", exl2k_exl3_expert_args, BUDGET) \
    X(exl2k_exl3_expert8_mcg, "exl3_expert_mcg.cu", exl2k_exl3_expert_args, BUDGET) \
    X(exl2k_exl3_expert16_mcg, "exl3_expert_mcg.cu", exl2k_exl3_expert_args, BUDGET) \
    X(exl2k_exl3_expert_wg_3inst, "exl3_expert_wg_3inst.cu", exl2k_exl3_expert_args, BUDGET) \
    X(exl2k_exl3_expert_gemm_3inst, "exl3_expert_gemm_3inst.cu", exl2k_exl3_expert_args, BUDGET) \
    X(exl2k_exl3_expert8_3inst, "exl3_expert_3inst.cu", exl2k_exl3_expert_args, BUDGET) \
    X(exl2k_exl3_expert16_3inst, "exl3_expert_3inst.cu", exl2k_exl3_expert_args, BUDGET) \
    X(exl2k_exl3_expert_rotate, "exl3_expert_rows.cu", exl2k_exl3_expert_rotate_args, NONE) \
    X(exl2k_exl3_rotate, "exl3_rotate.cu", exl2k_exl3_rotate_args, NONE)        \
    X(exl2k_exl3_norm_rows, "exl3_rotate.cu", exl2k_exl3_settle_args, NONE)     \
    X(exl2k_exl3_dump, "exl3_rotate.cu", exl2k_exl3_dump_args, NONE)            \
    X(exl2k_exl3_embed, "exl3_embed.cu", exl2k_exl3_embed_args, NONE)
#else
#define EXL2__KERNELS_EXL3(X)
#endif

#ifdef EXL2_CONVERT
#define EXL2__KERNELS_CONVERT(X)                                                \
    X(exl2k_half_rows, "convert/half.cu", exl2k_half_rows_args, NONE)           \
    X(exl2k_half_act, "convert/half.cu", exl2k_half_act_args, NONE)             \
    X(exl2k_half_columns, "convert/half.cu", exl2k_half_columns_args, NONE)     \
    X(exl2k_half_weights, "convert/half.cu", exl2k_half_weights_args, NONE)     \
    X(exl2k_half_product, "convert/half.cu", exl2k_half_product_args, BUDGET)   \
    X(exl2k_gram_finish, "convert/half.cu", exl2k_gram_args, NONE)              \
    X(exl2k_half_wg, "convert/half_wg.cu", exl2k_half_product_args, BUDGET)     \
    X(exl2k_pass_norm, "convert/pass.cu", exl2k_pass_norm_args, NONE)           \
    X(exl2k_pass_heads, "convert/pass.cu", exl2k_pass_heads_args, NONE)         \
    X(exl2k_pass_attend64, "convert/pass.cu", exl2k_pass_attend_args, NONE)     \
    X(exl2k_pass_attend128, "convert/pass.cu", exl2k_pass_attend_args, NONE)    \
    X(exl2k_pass_attend256, "convert/pass.cu", exl2k_pass_attend_args, NONE)    \
    X(exl2k_pass_kl, "convert/pass.cu", exl2k_pass_kl_args, NONE)               \
    X(exl2k_experts_weigh, "convert/experts.cu", exl2k_experts_weigh_args, NONE) \
    X(exl2k_experts_sum, "convert/experts.cu", exl2k_experts_sum_args, NONE)    \
    X(exl2k_experts_blend, "convert/experts.cu", exl2k_experts_blend_args, NONE) \
    X(exl2k_float_product, "convert/factor.cu", exl2k_float_product_args, NONE) \
    X(exl2k_factor_read, "convert/factor.cu", exl2k_factor_args, NONE)          \
    X(exl2k_factor_diagonal, "convert/factor.cu", exl2k_factor_args, NONE)      \
    X(exl2k_factor_solve, "convert/factor.cu", exl2k_factor_args, NONE)         \
    X(exl2k_factor_feedback, "convert/factor.cu", exl2k_factor_args, NONE)      \
    X(exl2k_losses_peaks, "convert/losses.cu", exl2k_losses_args, NONE)         \
    X(exl2k_losses_tries, "convert/losses.cu", exl2k_losses_args, NONE)         \
    X(exl2k_losses_errors, "convert/losses.cu", exl2k_losses_args, NONE)        \
    X(exl2k_losses_totals, "convert/losses.cu", exl2k_losses_args, NONE)        \
    X(exl2k_solve_load, "convert/solve.cu", exl2k_solve_args, NONE)             \
    X(exl2k_solve_values, "convert/solve.cu", exl2k_solve_args, NONE)           \
    X(exl2k_solve_aim, "convert/solve.cu", exl2k_solve_args, NONE)              \
    X(exl2k_solve_peaks, "convert/solve.cu", exl2k_solve_args, NONE)            \
    X(exl2k_solve_search, "convert/solve.cu", exl2k_solve_args, NONE)           \
    X(exl2k_solve_pick, "convert/solve.cu", exl2k_solve_args, NONE)             \
    X(exl2k_solve_round, "convert/solve.cu", exl2k_solve_args, BUDGET)          \
    X(exl2k_solve_descend, "convert/solve.cu", exl2k_solve_args, BUDGET)        \
    X(exl2k_solve_energy, "convert/solve.cu", exl2k_solve_args, NONE)           \
    X(exl2k_correct_read, "convert/correct.cu", exl2k_correct_args, NONE)       \
    X(exl2k_correct_turn, "convert/correct.cu", exl2k_correct_args, NONE)       \
    X(exl2k_correct_solve, "convert/correct.cu", exl2k_correct_args, BUDGET)    \
    X(exl2k_correct_add, "convert/correct.cu", exl2k_correct_args, NONE)
#else
#define EXL2__KERNELS_CONVERT(X)
#endif

#define EXL2__KERNELS(X) EXL2__KERNELS_MODEL(X) EXL2__KERNELS_EXL3(X) EXL2__KERNELS_CONVERT(X)

#endif
