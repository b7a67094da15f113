/* exl2_impl.h: the table of contents: all files of the implementation, each after the files that it depends on.
   takes: exl2.h above it, in the one C file that defines EXL2_IMPLEMENTATION.
   gives: every public function.

   Files between EXL2__SIZE_BEGIN and EXL2__SIZE_END are optimized for size, the others for speed. */

/* ---- 0_base: what every other folder uses ---- */

#include "0_base/config.h"
#include "0_base/simd.h"
#include "0_base/result.h"
#include "0_base/work.h"
#include "0_base/cpu_path.h"
#include "0_base/bytes.h"
EXL2__SIZE_BEGIN

#include "0_base/platform.h"
#include "0_base/platform_library.h"
#include "0_base/platform_alloc.h"
#include "0_base/platform_files.h"
#include "0_base/platform_write.h"
#include "0_base/thread.h"

EXL2__SIZE_END

#include "0_base/alloc.h"
#include "0_base/arena.h"
#include "0_base/pool.h"
#include "0_base/half.h"
#include "0_base/hash.h"
#include "0_base/hash_sums.h"
#include "0_base/sort.h"
#include "0_base/heap.h"
#include "0_base/log.h"

EXL2__SIZE_BEGIN

/* ---- 0_base/json: JSON, complete or still being written ---- */

#include "0_base/json/json_number.h"

EXL2__SIZE_END

#include "0_base/json/json_scan.h"

EXL2__SIZE_BEGIN

#include "0_base/json/json.h"

EXL2__SIZE_END

#include "0_base/json/json_part.h"

EXL2__SIZE_BEGIN

/* ---- 1_load: files of a model, checked as they are read ---- */

#include "1_load/file.h"
#include "1_load/json_file.h"
#include "1_load/fields.h"
#include "1_load/exl3_decode.h"
#include "1_load/quant_config.h"
#include "1_load/model_rope.h"
#include "1_load/model_rope_read.h"
#include "1_load/arch.h"
#include "1_load/arch_rows.h"
#include "1_load/arch_unsupported.h"
#include "1_load/model_experts.h"
#include "1_load/model_experts_read.h"
#include "1_load/model_config.h"
#include "1_load/model_layers_read.h"
#include "1_load/model_config_read.h"
#include "1_load/arch_words.h"
#include "1_load/pooling.h"
#include "1_load/tensor_files.h"
#include "1_load/tensor_table.h"
#include "1_load/content_id.h"
#include "1_load/lora_config.h"
#include "1_load/lora_files.h"
#include "1_load/steer_file.h"
#include "1_load/matrix_desc.h"
#include "1_load/affine_matrix.h"
#include "1_load/exl3_matrix.h"
#include "1_load/matrix_find.h"
#include "1_load/matrix_tables.h"
#include "1_load/matrix_dense.h"
#include "1_load/dequantize.h"
#include "1_load/dequantize_exl3.h"
#include "1_load/vision_config.h"
#include "1_load/vision_rows.h"
#include "1_load/vision_read.h"
#include "1_load/vision_size.h"

/* ---- 2_graph: the forward pass ---- */

#include "2_graph/columns.h"
#include "2_graph/lora.h"
#include "2_graph/phases.h"
#include "2_graph/span.h"
#include "2_graph/plan.h"
#include "2_graph/units.h"
#include "2_graph/lora_match.h"
#include "2_graph/weights_rows.h"
#include "2_graph/weights.h"
#include "2_graph/weights_headers.h"
#include "2_graph/weights_load.h"
#include "2_graph/lora_load.h"
#include "2_graph/forward.h"
#include "2_graph/forward_host.h"
#include "2_graph/forward_queue.h"

/* ---- 3_backend: computing phases on the CPU or a GPU ---- */

EXL2__SIZE_END

#include "3_backend/sample/cpu_weight.h"
#include "3_backend/sample/cpu_sample_list.h"
#include "3_backend/sample/cpu_sample_shape.h"
#include "3_backend/sample/cpu_sample.h"
#include "3_backend/sample/cpu_sample_run.h"
#include "3_backend/cpu/cpu_matrix.h"
#include "3_backend/cpu/cpu_phases.h"
#include "3_backend/cpu/cpu_codes.h"
#include "3_backend/cpu/cpu_device.h"
#include "3_backend/cpu/cpu_exl3.h"
#include "3_backend/cpu/cpu_lora.h"
#include "3_backend/cpu/cpu_multiply.h"
#include "3_backend/cpu/cpu_product.h"
#include "3_backend/cpu/cpu_logits.h"
#include "3_backend/cpu/cpu_attend.h"
#include "3_backend/cpu/cpu_fields.h"
#include "3_backend/cpu/cpu_lanes.h"
#include "3_backend/cpu/cpu_vector.h"
#include "3_backend/cpu/cpu_avx2.h"
#include "3_backend/cpu/cpu_exl3_pairs.h"
#include "3_backend/cpu/cpu_avx512.h"
#include "3_backend/cpu/cpu_neon.h"
#include "3_backend/cpu/cpu_plain.h"
#include "3_backend/cpu/cpu_experts.h"
#include "3_backend/cpu/cpu.h"
#include "3_backend/vision/pixels.h"
#include "3_backend/vision/vision_tasks.h"
#include "3_backend/vision/resize.h"
#include "3_backend/vision/tower_shape.h"
#include "3_backend/vision/tower.h"
#include "3_backend/vision/tower_read.h"
#include "3_backend/vision/tower_stages.h"
#include "3_backend/vision/tower_run.h"

EXL2__SIZE_BEGIN

#ifndef EXL2_NO_CUDA
#include "3_backend/cuda/cuda_api.h"
#include "3_backend/cuda/cuda_source.h"
#include "3_backend/cuda/cuda_compile.h"
#include "3_backend/cuda/cuda_cache.h"
#include "3_backend/cuda/cuda_kernels.h"
#include "3_backend/cuda/cuda_system.h"
#include "3_backend/cuda/cuda_device.h"
#include "3_backend/cuda/cuda_exl3_plan.h"
#include "3_backend/cuda/cuda_ring.h"
#include "3_backend/cuda/cuda_matrix.h"
#include "3_backend/cuda/cuda_gemm.h"
#include "3_backend/cuda/cuda_grouped_plan.h"
#include "3_backend/cuda/cuda_sample.h"
#include "3_backend/cuda/cuda_tower_plan.h"
#include "3_backend/cuda/cuda_timing.h"
#include "3_backend/cuda/cuda_buffers.h"
#include "3_backend/cuda/cuda_order.h"
#include "3_backend/cuda/cuda_model.h"
#include "3_backend/cuda/cuda_streamed.h"
#include "3_backend/cuda/cuda_make.h"
#include "3_backend/cuda/cuda_make_exl3.h"
#include "3_backend/cuda/cuda_make_experts.h"
#include "3_backend/cuda/cuda_load.h"
#include "3_backend/cuda/cuda_gemm_wg.h"
#include "3_backend/cuda/cuda_pass.h"
#include "3_backend/cuda/cuda_product.h"
#include "3_backend/cuda/cuda_meet.h"
#include "3_backend/cuda/cuda_grouped_gemm.h"
#include "3_backend/cuda/cuda_steer.h"
#include "3_backend/cuda/cuda_settle.h"
#include "3_backend/cuda/cuda_cross.h"
#include "3_backend/cuda/cuda_exl3.h"
#include "3_backend/cuda/cuda_exl3_experts.h"
#include "3_backend/cuda/cuda_lora.h"
#include "3_backend/cuda/cuda_experts.h"
#include "3_backend/cuda/cuda_split.h"
#include "3_backend/cuda/cuda_multiply.h"
#include "3_backend/cuda/cuda_peers.h"
#include "3_backend/cuda/cuda_attend.h"
#include "3_backend/cuda/cuda_phases.h"
#include "3_backend/cuda/cuda_host.h"
#include "3_backend/cuda/cuda_graph.h"
#include "3_backend/cuda/cuda_queue.h"
#include "3_backend/cuda/cuda_tower_load.h"
#include "3_backend/cuda/cuda_prepare.h"
#include "3_backend/cuda/cuda_tier.h"
#include "3_backend/cuda/cuda_park.h"
#include "3_backend/cuda/cuda_tower.h"
#include "3_backend/cuda/cuda.h"
#include "3_backend/cuda/cuda_group_members.h"
#include "3_backend/cuda/cuda_group_loras.h"
#include "3_backend/cuda/cuda_group_towers.h"
#include "3_backend/cuda/cuda_group.h"
#include "3_backend/cuda/cuda_probe.h"
#include "3_backend/cuda/cuda_peer.h"
#endif
#include "3_backend/hardware.h"

/* ---- 4_cache: K and V in pages ---- */

#include "4_cache/pictures.h"
#include "4_cache/vectors.h"
#include "4_cache/windows.h"
#include "4_cache/pages.h"
#include "4_cache/tier.h"
#include "4_cache/table_history.h"
#include "4_cache/table.h"
#include "4_cache/roots.h"

/* ---- 5_generate: several jobs in one pass ---- */

#include "5_generate/dry.h"
#include "5_generate/ngram.h"
#include "5_generate/sampler.h"
#include "5_generate/sequence.h"
#include "5_generate/schedule.h"
#include "5_generate/batch.h"

EXL2__SIZE_END

/* ---- 6_text: text to ids and back, grammars, chat templates ---- */

#include "6_text/unicode/unicode_table.h"
#include "6_text/unicode/unicode.h"
#include "6_text/unicode/lower.h"

EXL2__SIZE_BEGIN

#include "6_text/unicode/nfkc_table.h"
#include "6_text/unicode/nfkc.h"
#include "6_text/unicode/sentences.h"

EXL2__SIZE_END

#include "6_text/unicode/nfc_table.h"
#include "6_text/unicode/nfc.h"
#include "6_text/tokenizer/pieces.h"
#include "6_text/tokenizer/added.h"
#include "6_text/tokenizer/bpe.h"
#include "6_text/tokenizer/regex.h"

EXL2__SIZE_BEGIN

#include "6_text/tokenizer/regex_lex.h"
#include "6_text/tokenizer/regex_parse.h"

EXL2__SIZE_END

#include "6_text/tokenizer/normal.h"
#include "6_text/tokenizer/words.h"

EXL2__SIZE_BEGIN

#include "6_text/tokenizer/merges.h"
#include "6_text/tokenizer/vocab.h"
#include "6_text/tokenizer/vocab_names.h"
#include "6_text/tokenizer/vocab_steps.h"
#include "6_text/tokenizer/vocab_rules.h"
#include "6_text/tokenizer/vocab_measure.h"
#include "6_text/tokenizer/vocab_read.h"

EXL2__SIZE_END

#include "6_text/tokenizer/encode.h"

EXL2__SIZE_BEGIN

#include "6_text/tokenizer/stream.h"
#include "6_text/tokenizer/stops.h"
#include "6_text/grammar/grammar_code.h"
#include "6_text/grammar/grammar_shapes.h"
#include "6_text/grammar/grammar_vocab.h"
#include "6_text/grammar/grammar_link.h"

EXL2__SIZE_END

#include "6_text/grammar/grammar_state.h"
#include "6_text/grammar/grammar_reset.h"
#include "6_text/grammar/grammar_levels.h"
#include "6_text/grammar/grammar_walk.h"
#include "6_text/grammar/grammar_lengths.h"
#include "6_text/grammar/grammar_check.h"
#include "6_text/grammar/grammar_mask.h"
#include "6_text/grammar/grammar_place.h"
#include "6_text/grammar/grammar_forced.h"

EXL2__SIZE_BEGIN

#include "6_text/grammar/grammar_choice.h"
#include "6_text/grammar/grammar_regex.h"
#include "6_text/grammar/grammar_ebnf.h"

EXL2__SIZE_END

#include "6_text/grammar/grammar_product.h"
#include "6_text/grammar/grammar_alike.h"
#include "6_text/grammar/grammar_common.h"

EXL2__SIZE_BEGIN

#include "6_text/grammar/grammar_unroll.h"
#include "6_text/grammar/grammar_document.h"
#include "6_text/grammar/grammar_ref.h"
#include "6_text/grammar/grammar_schema.h"
#include "6_text/grammar/grammar_types.h"
#include "6_text/grammar/grammar_range.h"
#include "6_text/grammar/grammar_value.h"
#include "6_text/grammar/grammar_string.h"
#include "6_text/grammar/grammar_number.h"
#include "6_text/grammar/grammar_sequence.h"
#include "6_text/grammar/grammar_depend.h"
#include "6_text/grammar/grammar_array.h"
#include "6_text/grammar/grammar_keys.h"
#include "6_text/grammar/grammar_object_keys.h"
#include "6_text/grammar/grammar_apart.h"
#include "6_text/grammar/grammar_object.h"
#include "6_text/grammar/grammar_branch.h"
#include "6_text/grammar/grammar.h"
#include "6_text/chat/template_code.h"
#include "6_text/chat/template_lex.h"
#include "6_text/chat/template_emit.h"
#include "6_text/chat/template_expression.h"
#include "6_text/chat/template_statement.h"
#include "6_text/chat/template_number.h"
#include "6_text/chat/template_value.h"
#include "6_text/chat/template_text.h"
#include "6_text/chat/template_operator.h"
#include "6_text/chat/template_part.h"
#include "6_text/chat/template_json.h"
#include "6_text/chat/template_case.h"
#include "6_text/chat/template_format.h"
#include "6_text/chat/template_spec.h"
#include "6_text/chat/template_clock.h"
#include "6_text/chat/template_list.h"
#include "6_text/chat/template_method.h"
#include "6_text/chat/template_call.h"
#include "6_text/chat/template_function.h"
#include "6_text/chat/template_frame.h"
#include "6_text/chat/template_macro.h"
#include "6_text/chat/template_run.h"
#include "6_text/chat/template.h"
#include "6_text/chat/template_probe.h"
#include "6_text/chat/template_guard.h"
#include "6_text/chat/template_set.h"

/* ---- 7_engine: the public functions and the one step ---- */

#include "7_engine/events.h"
#include "7_engine/image_objects.h"
#include "7_engine/objects.h"
#include "7_engine/cards.h"
#include "7_engine/cards_choose.h"
#include "7_engine/cards_fit.h"
#include "7_engine/offload.h"
#include "7_engine/gate.h"
#include "7_engine/grammars.h"
#include "7_engine/jobs.h"
#include "7_engine/tier_moves.h"
#include "7_engine/embeddings.h"
#include "7_engine/loras.h"
#include "7_engine/steers.h"
#include "7_engine/images.h"
#include "7_engine/image_work.h"
#include "7_engine/draft_models.h"
#include "7_engine/job_lists.h"
#include "7_engine/image_prompt.h"
#include "7_engine/job_prompt.h"
#include "7_engine/snapshot_pictures.h"
#include "7_engine/snapshot.h"
#include "7_engine/snapshot_resume.h"
#include "7_engine/job_start.h"
#include "7_engine/loading_layout.h"
#include "7_engine/loading_read.h"
#include "7_engine/loading_sizes.h"
#include "7_engine/loading.h"
#include "7_engine/loading_run.h"
#include "7_engine/forced.h"
#include "7_engine/drafts.h"
#include "7_engine/masks.h"
#include "7_engine/host_sample.h"
#include "7_engine/step_cards.h"
#include "7_engine/step.h"
#include "7_engine/step_park.h"
#include "7_engine/job_wait.h"
#include "7_engine/worker.h"
#include "7_engine/layouts.h"
#include "7_engine/api.h"
#include "7_engine/api_engine.h"
#include "7_engine/api_models.h"
#include "7_engine/api_loras.h"
#include "7_engine/api_steers.h"
#include "7_engine/api_text.h"
#include "7_engine/api_images.h"
#include "7_engine/api_jobs.h"
#include "7_engine/public.h"

EXL2__SIZE_END

#ifdef EXL2_CONVERT

/* ---- 8_convert: making models ---- */

#include "8_convert/folder.h"
#include "8_convert/pack.h"
#include "8_convert/quantize.h"
#include "8_convert/tasks.h"
#include "8_convert/decode.h"
#include "8_convert/write.h"
#include "8_convert/shards.h"
#include "8_convert/dump.h"
#include "8_convert/gguf/gguf_types.h"
#include "8_convert/gguf/gguf_header.h"
#include "8_convert/gguf/gguf.h"
#include "8_convert/gguf/gguf_split.h"
#include "8_convert/gguf/import_families.h"
#include "8_convert/gguf/import_config.h"
#include "8_convert/gguf/import_config_write.h"
#include "8_convert/gguf/import_text.h"
#include "8_convert/gguf/import_spm.h"
#include "8_convert/gguf/import_text_write.h"
#include "8_convert/gguf/import_plan.h"
#include "8_convert/gguf/import_model.h"
#include "8_convert/gguf/import.h"
#include "8_convert/gpu/gpu.h"
#include "8_convert/gpu/gpu_inputs.h"
#include "8_convert/gpu/gpu_experts.h"
#include "8_convert/gpu/gpu_pass.h"
#include "8_convert/gpu/gpu_factor.h"
#include "8_convert/gpu/gpu_solve.h"
#include "8_convert/gpu/gpu_correct.h"
#include "8_convert/quantizer/panels.h"
#include "8_convert/quantizer/factor.h"
#include "8_convert/quantizer/solve.h"
#include "8_convert/quantizer/losses.h"
#include "8_convert/quantizer/allocate.h"
#include "8_convert/quantizer/runner_read.h"
#include "8_convert/quantizer/runner.h"
#include "8_convert/quantizer/runner_place.h"
#include "8_convert/quantizer/runner_states.h"
#include "8_convert/quantizer/runner_pass.h"
#include "8_convert/quantizer/runner_logits.h"
#include "8_convert/quantizer/gram.h"
#include "8_convert/quantizer/compare.h"
#include "8_convert/quantizer/compare_models.h"
#include "8_convert/quantizer/measure.h"
#include "8_convert/quantizer/measure_probe.h"
#include "8_convert/quantizer/measure_moments.h"
#include "8_convert/quantizer/measure_trial.h"
#include "8_convert/quantizer/correct.h"
#include "8_convert/quantizer/streams.h"
#include "8_convert/quantizer/workdir.h"
#include "8_convert/quantizer/linears.h"
#include "8_convert/quantizer/device_plan.h"
#include "8_convert/quantizer/spare_texts.h"
#include "8_convert/quantizer/texts.h"
#include "8_convert/quantizer/convert_write.h"
#include "8_convert/quantizer/convert_watch.h"
#include "8_convert/quantizer/convert_lora.h"
#include "8_convert/quantizer/convert_source.h"
#include "8_convert/quantizer/options.h"
#include "8_convert/quantizer/measurement.h"
#include "8_convert/quantizer/convert_desc.h"
#include "8_convert/quantizer/convert_plan.h"
#include "8_convert/quantizer/convert_values.h"
#include "8_convert/quantizer/convert_allocate.h"
#include "8_convert/quantizer/convert_open.h"
#include "8_convert/quantizer/convert_measure.h"
#include "8_convert/quantizer/convert.h"
#endif
