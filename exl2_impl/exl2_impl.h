/* exl2_impl.h: the table of contents: all files of the implementation, each after the files that it depends on.
   takes: exl2.h above it, in the one C file that defines EXL2_IMPLEMENTATION.
   gives: every public function.
   owns:  nothing.

   Files between EXL2__SIZE_BEGIN and EXL2__SIZE_END are optimized for size, the others for speed. */

/* ---- 0_base: what every other folder uses ---- */

/* defines: EXL2__ASSERT, EXL2__PRINTF, EXL2__COUNT, SIMD target attributes, atomics, locks */
#include "0_base/config.h"
/* defines: the compiler's intrinsics, for files with vectors */
#include "0_base/simd.h"
/* defines: the context (hooks, last error), formatting, exl2__fail, EXL2__TRY */
#include "0_base/result.h"
/* defines: slices of long tasks */
#include "0_base/work.h"
/* defines: the choice of the CPU's instruction set */
#include "0_base/cpu_path.h"
/* defines: checked arithmetic, little-endian loads and stores */
#include "0_base/bytes.h"
EXL2__SIZE_BEGIN

/* defines: clock, entropy, default allocator, default files */
#include "0_base/platform.h"
/* defines: writing files and folders, locks on files */
#include "0_base/platform_write.h"
/* defines: a thread, mutexes, signals between threads */
#include "0_base/thread.h"

EXL2__SIZE_END

/* defines: allocation with byte counts and the cap host_bytes_max */
#include "0_base/alloc.h"
/* defines: arenas, which in a dry run only count bytes */
#include "0_base/arena.h"
/* defines: handles for fixed slots */
#include "0_base/pool.h"
/* defines: fp16 and bf16 */
#include "0_base/half.h"
/* defines: string hash, string table */
#include "0_base/hash.h"
/* defines: sorting without libc */
#include "0_base/sort.h"
/* defines: a binary heap */
#include "0_base/heap.h"
/* defines: log lines, profiler zones */
#include "0_base/log.h"

EXL2__SIZE_BEGIN

/* ---- 0_base/json: JSON, complete or still being written ---- */

/* defines: JSON numbers, independent of the locale */
#include "0_base/json/json_number.h"

EXL2__SIZE_END

/* defines: a scanner for JSON syntax */
#include "0_base/json/json_scan.h"

EXL2__SIZE_BEGIN

/* defines: JSON text as a flat array of tokens */
#include "0_base/json/json.h"

EXL2__SIZE_END

/* defines: one value of a JSON text that is still being written */
#include "0_base/json/json_part.h"

EXL2__SIZE_BEGIN

/* ---- 1_load: files of a model, checked as they are read ---- */

/* defines: reading a small file into memory */
#include "1_load/file.h"
/* defines: reading and parsing a JSON file in slices */
#include "1_load/json_file.h"
/* defines: typed, bounded fields of a config file */
#include "1_load/fields.h"
/* defines: how a model is quantized, by its config files */
#include "1_load/quant_config.h"
/* defines: RoPE frequencies and their scalings */
#include "1_load/model_rope.h"
/* defines: reading the settings of RoPE */
#include "1_load/model_rope_read.h"
/* defines: what a row says about a family: names of tensors, traits */
#include "1_load/arch.h"
/* defines: one row per architecture */
#include "1_load/arch_rows.h"
/* defines: architectures that are rejected, with reasons */
#include "1_load/arch_unsupported.h"
/* defines: the numbers of experts */
#include "1_load/model_experts.h"
/* defines: reading the settings of experts */
#include "1_load/model_experts_read.h"
/* defines: what config.json says of a model */
#include "1_load/model_config.h"
/* defines: reading how layers differ */
#include "1_load/model_layers_read.h"
/* defines: reading config.json and generation_config.json */
#include "1_load/model_config_read.h"
/* defines: a row in words */
#include "1_load/arch_words.h"
/* defines: the open safetensors files of a folder */
#include "1_load/tensor_files.h"
/* defines: the table of all tensors */
#include "1_load/tensor_table.h"
/* defines: the number that says which model a folder holds */
#include "1_load/content_id.h"
/* defines: the description of a linear layer */
#include "1_load/matrix_desc.h"
/* defines: matrices of GPTQ and AWQ */
#include "1_load/affine_matrix.h"
/* defines: a linear layer as a backend packs it: EXL2, dense, GPTQ or AWQ */
#include "1_load/exl2_matrix.h"
/* defines: a matrix of codes, read as a dense one */
#include "1_load/dequantize.h"

/* ---- 2_graph: the forward pass ---- */

/* defines: the backend boundary */
#include "2_graph/phases.h"
/* defines: shapes, limits and bytes of a model, computed before allocation */
#include "2_graph/plan.h"
/* defines: the model as a list of matrices and vectors */
#include "2_graph/units.h"
/* defines: the rows in which files store a matrix */
#include "2_graph/weights_rows.h"
/* defines: loading tensors in slices into a backend's packing */
#include "2_graph/weights.h"
/* defines: a forward pass that can stop after any unit */
#include "2_graph/forward.h"
/* defines: forward passes on an asynchronous backend: queue units, collect results, repeat a pass */
#include "2_graph/forward_queue.h"

/* ---- 3_backend: computing phases on the CPU or a GPU ---- */

EXL2__SIZE_END

/* defines: the integer arithmetic of sampling */
#include "3_backend/sample/cpu_weight.h"
/* defines: the candidate tokens of a row */
#include "3_backend/sample/cpu_sample_list.h"
/* defines: the filters top-a, tail-free, typical, mirostat, XTC, skew */
#include "3_backend/sample/cpu_sample_shape.h"
/* defines: sampling: a row of logits -> a token, or log-probabilities */
#include "3_backend/sample/cpu_sample.h"
/* defines: CPU weights in strips of 32 columns */
#include "3_backend/cpu/cpu_matrix.h"
/* defines: every operation in plain C: the reference */
#include "3_backend/cpu/cpu_phases.h"
/* defines: K and V as codes: their layout, and writing them */
#include "3_backend/cpu/cpu_codes.h"
/* defines: one model on the CPU, and how its work is divided among threads */
#include "3_backend/cpu/cpu_device.h"
/* defines: rows of logits on the CPU */
#include "3_backend/cpu/cpu_logits.h"
/* defines: writing K and V to pages, attention over pages */
#include "3_backend/cpu/cpu_attend.h"
/* defines: masks and scales of packed codes */
#include "3_backend/cpu/cpu_fields.h"
/* defines: eight lanes of float, of AVX2 or NEON */
#include "3_backend/cpu/cpu_lanes.h"
/* defines: norms, gathers, RoPE, softmax, activations in eight lanes */
#include "3_backend/cpu/cpu_vector.h"
/* defines: products and attention in eight lanes (AVX2) */
#include "3_backend/cpu/cpu_avx2.h"
/* defines: products and attention in sixteen lanes (AVX-512) */
#include "3_backend/cpu/cpu_avx512.h"
/* defines: products and attention in four lanes (NEON) */
#include "3_backend/cpu/cpu_neon.h"
/* defines: every operation in eight lanes of plain C, for all other CPUs */
#include "3_backend/cpu/cpu_plain.h"
/* defines: experts on the CPU: choice, rows by expert, products */
#include "3_backend/cpu/cpu_experts.h"
/* defines: the CPU backend */
#include "3_backend/cpu/cpu.h"

EXL2__SIZE_BEGIN

#ifndef EXL2_NO_CUDA
/* defines: function tables of the CUDA driver and NVRTC, loaded at run time */
#include "3_backend/cuda/cuda_api.h"
/* defines: the sources of kernels with their includes */
#include "3_backend/cuda/cuda_source.h"
/* defines: compiling one module with NVRTC */
#include "3_backend/cuda/cuda_compile.h"
/* defines: entries of the kernel cache, checked */
#include "3_backend/cuda/cuda_cache.h"
/* defines: the list of kernels; finding, compiling and loading them */
#include "3_backend/cuda/cuda_kernels.h"
/* defines: the list of GPUs, and the selection of one */
#include "3_backend/cuda/cuda_system.h"
/* defines: one GPU in use: context, streams, memory, launches */
#include "3_backend/cuda/cuda_device.h"
/* defines: pinned staging memory, and copies from it */
#include "3_backend/cuda/cuda_ring.h"
/* defines: where a matrix lies in device memory: strips, chunks, slices */
#include "3_backend/cuda/cuda_matrix.h"
/* defines: launches of products with many rows */
#include "3_backend/cuda/cuda_gemm.h"
/* defines: launches of experts with many rows */
#include "3_backend/cuda/cuda_grouped_plan.h"
/* defines: sampling on the GPU: its parameters and results */
#include "3_backend/cuda/cuda_sample.h"
/* defines: learned times of units on the GPU */
#include "3_backend/cuda/cuda_timing.h"
/* defines: buffers of passes */
#include "3_backend/cuda/cuda_buffers.h"
/* defines: a model's weights and buffers on the GPU */
#include "3_backend/cuda/cuda_model.h"
/* defines: launches of products of many rows by wgmma */
#include "3_backend/cuda/cuda_gemm_wg.h"
/* defines: data that changes with each pass */
#include "3_backend/cuda/cuda_pass.h"
/* defines: products and norms of a pass */
#include "3_backend/cuda/cuda_product.h"
/* defines: enqueues these launches */
#include "3_backend/cuda/cuda_grouped_gemm.h"
/* defines: launches of attention's kernels */
#include "3_backend/cuda/cuda_attend.h"
/* defines: norms that are not folded into products */
#include "3_backend/cuda/cuda_settle.h"
/* defines: layers with experts: router, experts of each row */
#include "3_backend/cuda/cuda_experts.h"
/* defines: products of parts with different permutations */
#include "3_backend/cuda/cuda_split.h"
/* defines: launches of the phases' kernels */
#include "3_backend/cuda/cuda_phases.h"
/* defines: units of a pass, and CUDA graphs of units */
#include "3_backend/cuda/cuda_graph.h"
/* defines: passes in flight: queued, repeated, collected */
#include "3_backend/cuda/cuda_queue.h"
/* defines: work between loading and the first pass */
#include "3_backend/cuda/cuda_prepare.h"
/* defines: giving back device memory, and filling it again from a copy of the packed weights */
#include "3_backend/cuda/cuda_park.h"
/* defines: the CUDA backend */
#include "3_backend/cuda/cuda.h"
/* defines: a measurement of a GPU's memory bandwidth */
#include "3_backend/cuda/cuda_probe.h"
#endif
/* defines: the backend that an engine's models run on */
#include "3_backend/hardware.h"

/* ---- 4_cache: K and V in pages ---- */

/* defines: the pool of KV pages */
#include "4_cache/pages.h"
/* defines: a session's list of pages: append, rewind, fork */
#include "4_cache/table.h"

/* ---- 5_generate: several jobs in one pass ---- */

/* defines: DRY, a penalty on repeating earlier text */
#include "5_generate/dry.h"
/* defines: guessing the next tokens from what followed the last ones before */
#include "5_generate/ngram.h"
/* defines: presets and sampler settings, resolved */
#include "5_generate/sampler.h"
/* defines: the scheduler's state of a job */
#include "5_generate/sequence.h"
/* defines: scheduling: which job may start, and how many rows each job gets */
#include "5_generate/schedule.h"
/* defines: rows of several sequences as one pass */
#include "5_generate/batch.h"

EXL2__SIZE_END

/* ---- 6_text: text to ids and back, grammars, chat templates ---- */

/* defines: the class of every code point, packed */
#include "6_text/unicode/unicode_table.h"
/* defines: UTF-8, and classes of code points */
#include "6_text/unicode/unicode.h"
/* defines: lower case */
#include "6_text/unicode/lower.h"

EXL2__SIZE_BEGIN

/* defines: compatibility decompositions, packed */
#include "6_text/unicode/nfkc_table.h"
/* defines: the compatibility decomposition of a code point */
#include "6_text/unicode/nfkc.h"

EXL2__SIZE_END

/* defines: canonical decompositions */
#include "6_text/unicode/nfc_table.h"
/* defines: normal forms D and C */
#include "6_text/unicode/nfc.h"
/* defines: the bytes of every token */
#include "6_text/tokenizer/pieces.h"
/* defines: finding added tokens in text */
#include "6_text/tokenizer/added.h"
/* defines: byte-pair merging */
#include "6_text/tokenizer/bpe.h"
/* defines: regular expressions over text */
#include "6_text/tokenizer/regex.h"

EXL2__SIZE_BEGIN

/* defines: parsing a pattern into a program */
#include "6_text/tokenizer/regex_parse.h"

EXL2__SIZE_END

/* defines: normalization of text before it is split */
#include "6_text/tokenizer/normal.h"
/* defines: splitting text into words */
#include "6_text/tokenizer/words.h"

EXL2__SIZE_BEGIN

/* defines: the merges of tokenizer.json */
#include "6_text/tokenizer/merges.h"
/* defines: a model's tokenizer in memory */
#include "6_text/tokenizer/vocab.h"
/* defines: tokenizer_config.json */
#include "6_text/tokenizer/vocab_names.h"
/* defines: the steps that tokenizer.json asks for */
#include "6_text/tokenizer/vocab_steps.h"
/* defines: the other components of tokenizer.json */
#include "6_text/tokenizer/vocab_rules.h"
/* defines: the memory that a tokenizer needs */
#include "6_text/tokenizer/vocab_measure.h"
/* defines: a tokenizer read from its files */
#include "6_text/tokenizer/vocab_read.h"

EXL2__SIZE_END

/* defines: text -> ids */
#include "6_text/tokenizer/encode.h"

EXL2__SIZE_BEGIN

/* defines: ids, one at a time -> whole code points */
#include "6_text/tokenizer/stream.h"
/* defines: finding stop strings in text that arrives in pieces */
#include "6_text/tokenizer/stops.h"
/* defines: an automaton over bytes with calls and counted loops, as front ends build it */
#include "6_text/grammar/grammar_code.h"
/* defines: a model's tokens as tries of bytes */
#include "6_text/grammar/grammar_vocab.h"
/* defines: an automaton ready for use: byte classes, shortest paths to the end */
#include "6_text/grammar/grammar_link.h"

EXL2__SIZE_END

/* defines: states, made when they are first reached */
#include "6_text/grammar/grammar_state.h"
/* defines: merging states that differ only in counts that do not matter yet */
#include "6_text/grammar/grammar_reset.h"
/* defines: which tokens a state allows */
#include "6_text/grammar/grammar_mask.h"
/* defines: the token that a state forces */
#include "6_text/grammar/grammar_forced.h"

EXL2__SIZE_BEGIN

/* defines: grammars from lists of strings */
#include "6_text/grammar/grammar_choice.h"
/* defines: grammars from regular expressions */
#include "6_text/grammar/grammar_regex.h"
/* defines: grammars from EBNF, and lists of choices */
#include "6_text/grammar/grammar_ebnf.h"
/* defines: languages of short texts: intersections of several expressions */
#include "6_text/grammar/grammar_words.h"
/* defines: such a language as nodes with counted characters */
#include "6_text/grammar/grammar_unroll.h"
/* defines: JSON schemas: keywords, sets of subschemas */
#include "6_text/grammar/grammar_schema.h"
/* defines: resolving the $ref of a schema */
#include "6_text/grammar/grammar_ref.h"
/* defines: types that a schema allows, and `not` */
#include "6_text/grammar/grammar_types.h"
/* defines: grammars of numbers between bounds */
#include "6_text/grammar/grammar_number.h"
/* defines: any JSON value, texts of constants */
#include "6_text/grammar/grammar_value.h"
/* defines: strings of a schema: formats, patterns, lengths */
#include "6_text/grammar/grammar_string.h"
/* defines: numbers and constants of a schema */
#include "6_text/grammar/grammar_figure.h"
/* defines: members in order, with a count */
#include "6_text/grammar/grammar_sequence.h"
/* defines: members that must be present where another is */
#include "6_text/grammar/grammar_depend.h"
/* defines: arrays of a schema */
#include "6_text/grammar/grammar_array.h"
/* defines: keys outside a list, or matching patterns */
#include "6_text/grammar/grammar_keys.h"
/* defines: objects of a schema */
#include "6_text/grammar/grammar_object.h"
/* defines: schemas that no value fits both of */
#include "6_text/grammar/grammar_apart.h"
/* defines: choices between schemas, complete schemas */
#include "6_text/grammar/grammar_branch.h"
/* defines: a grammar of any kind */
#include "6_text/grammar/grammar.h"
/* defines: a parsed chat template */
#include "6_text/chat/template_code.h"
/* defines: template text -> tokens */
#include "6_text/chat/template_lex.h"
/* defines: the program while it grows, and its error messages */
#include "6_text/chat/template_emit.h"
/* defines: literals, variables, calls and their suffixes -> code */
#include "6_text/chat/template_operand.h"
/* defines: expressions -> code */
#include "6_text/chat/template_expression.h"
/* defines: assignment targets, and blocks whose text is a value -> code */
#include "6_text/chat/template_capture.h"
/* defines: statements -> code */
#include "6_text/chat/template_statement.h"
/* defines: numbers printed as Python prints them */
#include "6_text/chat/template_number.h"
/* defines: values of a running template, marked by origin */
#include "6_text/chat/template_value.h"
/* defines: Python's string operations */
#include "6_text/chat/template_text.h"
/* defines: Python's operators */
#include "6_text/chat/template_operator.h"
/* defines: attributes, items and slices of values */
#include "6_text/chat/template_part.h"
/* defines: JSON <-> values */
#include "6_text/chat/template_json.h"
/* defines: upper, lower and title case */
#include "6_text/chat/template_case.h"
/* defines: formatting of numbers and strings */
#include "6_text/chat/template_format.h"
/* defines: str.format */
#include "6_text/chat/template_spec.h"
/* defines: the date and time */
#include "6_text/chat/template_clock.h"
/* defines: filters over lists */
#include "6_text/chat/template_list.h"
/* defines: methods */
#include "6_text/chat/template_method.h"
/* defines: filters and tests */
#include "6_text/chat/template_call.h"
/* defines: the functions that Jinja predefines */
#include "6_text/chat/template_function.h"
/* defines: frames, loops and output of a running template */
#include "6_text/chat/template_frame.h"
/* defines: calls of macros */
#include "6_text/chat/template_macro.h"
/* defines: the stack machine */
#include "6_text/chat/template_run.h"
/* defines: chat templates: parse and render */
#include "6_text/chat/template.h"
/* defines: whether a template reads tools and tool calls */
#include "6_text/chat/template_probe.h"
/* defines: the added tokens that a template prints, which no message may forge */
#include "6_text/chat/template_guard.h"
/* defines: the templates of a model folder */
#include "6_text/chat/template_set.h"

/* ---- 7_engine: the public functions and the one step ---- */

/* defines: the ring of events that wait for exl2_next_event */
#include "7_engine/events.h"
/* defines: the engine and its objects, and the look-up of handles */
#include "7_engine/objects.h"
/* defines: the lock that calls and the worker share */
#include "7_engine/gate.h"
/* defines: grammars that the application has made, and the state of each job in its grammar */
#include "7_engine/grammars.h"
/* defines: a running job: accepting tokens, delivering text, ending */
#include "7_engine/jobs.h"
/* defines: hidden jobs of a smaller model, which guess a job's next tokens */
#include "7_engine/draft_models.h"
/* defines: copies of a job's sampler settings, stops and bans */
#include "7_engine/job_lists.h"
/* defines: a session as bytes, and back */
#include "7_engine/snapshot.h"
/* defines: exl2_job_desc -> a queued job */
#include "7_engine/job_start.h"
/* defines: the stages of loading a model; closing it */
#include "7_engine/loading.h"
/* defines: loading in slices, also of a parked model */
#include "7_engine/loading_run.h"
/* defines: tokens that a grammar forces: they cost no pass */
#include "7_engine/forced.h"
/* defines: guesses of the next tokens, several of which one pass can confirm */
#include "7_engine/drafts.h"
/* defines: masks of rows: which tokens may be sampled */
#include "7_engine/masks.h"
/* defines: sampling, on the CPU, a row whose logits were fetched */
#include "7_engine/host_sample.h"
/* defines: exl2_step */
#include "7_engine/step.h"
/* defines: a thread that steps the engine */
#include "7_engine/worker.h"
/* defines: functions of engine, events, models and text */
#include "7_engine/api.h"
/* defines: functions of sessions, sampling, grammars and jobs */
#include "7_engine/api_jobs.h"
/* defines: the public functions, through the lock that they share with the worker */
#include "7_engine/public.h"

EXL2__SIZE_END

#ifdef EXL2_CONVERT

/* ---- 8_convert: making models ---- */

/* defines: an output folder that is either complete or removed */
#include "8_convert/folder.h"
/* defines: packing: codes and scales -> words of an EXL2 file */
#include "8_convert/pack.h"
/* defines: quantization: numbers -> scales and codes of a group */
#include "8_convert/quantize.h"
/* defines: running the parts of a conversion in parallel */
#include "8_convert/tasks.h"
/* defines: codes of a matrix -> FP16 */
#include "8_convert/decode.h"
/* defines: buffered writing of text files */
#include "8_convert/write.h"
/* defines: safetensors files, written in any order */
#include "8_convert/shards.h"
/* defines: tensor types of GGUF */
#include "8_convert/gguf/gguf_types.h"
/* defines: names, values and shapes in a GGUF header */
#include "8_convert/gguf/gguf_header.h"
/* defines: reading and checking a GGUF file */
#include "8_convert/gguf/gguf.h"
/* defines: a GGUF model in several files */
#include "8_convert/gguf/gguf_split.h"
/* defines: what GGUF files of each model family leave out or change */
#include "8_convert/gguf/import_families.h"
/* defines: reading the GGUF keys that describe the model */
#include "8_convert/gguf/import_config.h"
/* defines: GGUF keys -> config.json */
#include "8_convert/gguf/import_config_write.h"
/* defines: reading the GGUF keys that describe the tokenizer */
#include "8_convert/gguf/import_text.h"
/* defines: scores of SentencePiece -> merges */
#include "8_convert/gguf/import_spm.h"
/* defines: GGUF keys -> tokenizer files */
#include "8_convert/gguf/import_text_write.h"
/* defines: the mapping of GGUF tensors to tensors of the model */
#include "8_convert/gguf/import_plan.h"
/* defines: GGUF tensors -> safetensors files */
#include "8_convert/gguf/import_model.h"
/* defines: exl2_import_gguf */
#include "8_convert/gguf/import.h"
/* defines: the GPU of a conversion */
#include "8_convert/gpu/gpu.h"
/* defines: moments of inputs, products with weights on the GPU */
#include "8_convert/gpu/gpu_inputs.h"
/* defines: the experts of a layer on the GPU */
#include "8_convert/gpu/gpu_experts.h"
/* defines: the phases of a layer on the GPU */
#include "8_convert/gpu/gpu_pass.h"
/* defines: factorization on the GPU */
#include "8_convert/gpu/gpu_factor.h"
/* defines: quantizing one matrix on the GPU */
#include "8_convert/gpu/gpu_solve.h"
/* defines: corrected targets on the GPU */
#include "8_convert/gpu/gpu_correct.h"
/* defines: square matrices in panels, and their products */
#include "8_convert/quantizer/panels.h"
/* defines: factorization of the moments of an input */
#include "8_convert/quantizer/factor.h"
/* defines: quantization of a matrix by the error of its outputs */
#include "8_convert/quantizer/solve.h"
/* defines: what each block of a matrix loses at each width */
#include "8_convert/quantizer/losses.h"
/* defines: the widths of all groups of a model, for a number of bits */
#include "8_convert/quantizer/allocate.h"
/* defines: reading weights in parallel */
#include "8_convert/quantizer/runner_read.h"
/* defines: the weights of a model that runs layer by layer */
#include "8_convert/quantizer/runner.h"
/* defines: passes of whole sequences through such a model */
#include "8_convert/quantizer/runner_pass.h"
/* defines: second moments of inputs */
#include "8_convert/quantizer/gram.h"
/* defines: KL divergence between the logits of two models */
#include "8_convert/quantizer/compare.h"
/* defines: what the matrices of a layer lose, and what that costs */
#include "8_convert/quantizer/measure.h"
/* defines: targets that make up for the errors of other matrices */
#include "8_convert/quantizer/correct.h"
/* defines: the original and the quantized model at once */
#include "8_convert/quantizer/streams.h"
/* defines: a folder with the finished parts of a conversion */
#include "8_convert/quantizer/keep.h"
/* defines: the list of matrices that are quantized */
#include "8_convert/quantizer/slots.h"
/* defines: what a conversion allocates on a GPU */
#include "8_convert/quantizer/device_plan.h"
/* defines: texts for models that are too large to write their own */
#include "8_convert/quantizer/spare_texts.h"
/* defines: their second half */
#include "8_convert/quantizer/spare_texts_model.h"
/* defines: ids for calibration */
#include "8_convert/quantizer/texts.h"
/* defines: the output folder of a conversion */
#include "8_convert/quantizer/convert_write.h"
/* defines: a dense folder made of a GGUF file or of FP8 weights */
#include "8_convert/quantizer/convert_source.h"
/* defines: the choice of ExLlamaV2's layouts */
#include "8_convert/quantizer/options.h"
/* defines: measurement.json */
#include "8_convert/quantizer/measurement.h"
/* defines: the checks and the allocation of a conversion */
#include "8_convert/quantizer/convert_plan.h"
/* defines: the opening of what a conversion works on */
#include "8_convert/quantizer/convert_open.h"
/* defines: the measurement of all layers */
#include "8_convert/quantizer/convert_measure.h"
/* defines: exl2_convert */
#include "8_convert/quantizer/convert.h"
#endif
