/* layouts.h: where the members of public structs lie, so that a binding of another language can compare its own.
   takes: the structs of exl2.h; a binding's list of members.
   gives: exl2_layout_at, exl2__layouts_check. */
#ifndef EXL2__LAYOUTS_H
#define EXL2__LAYOUTS_H

#include "../0_base/result.h"

#define EXL2__MEMBER(type, member)                                                                                     \
    {                                                                                                                  \
        #type, #member, (uint32_t)offsetof(type, member), (uint32_t)sizeof(((const type *)0)->member)                  \
    }

/* All members of all public structs, in the header's order. tests/layers.c compares the list with the header. */
static const exl2_layout exl2__layouts_members[] = {
    EXL2__MEMBER(exl2_layout, type), EXL2__MEMBER(exl2_layout, member), EXL2__MEMBER(exl2_layout, offset),
    EXL2__MEMBER(exl2_layout, bytes),
    EXL2__MEMBER(exl2_model, id),
    EXL2__MEMBER(exl2_session, id),
    EXL2__MEMBER(exl2_job, id),
    EXL2__MEMBER(exl2_grammar, id),
    EXL2__MEMBER(exl2_lora, id),
    EXL2__MEMBER(exl2_steer, id),
    EXL2__MEMBER(exl2_image, id),
    EXL2__MEMBER(exl2_error, code), EXL2__MEMBER(exl2_error, native), EXL2__MEMBER(exl2_error, text),
    EXL2__MEMBER(exl2_allocator, alloc_fn), EXL2__MEMBER(exl2_allocator, free_fn),
    EXL2__MEMBER(exl2_allocator, device_alloc_fn), EXL2__MEMBER(exl2_allocator, device_free_fn),
    EXL2__MEMBER(exl2_allocator, user),
    EXL2__MEMBER(exl2_files, open), EXL2__MEMBER(exl2_files, list), EXL2__MEMBER(exl2_files, read),
    EXL2__MEMBER(exl2_files, close), EXL2__MEMBER(exl2_files, user),
    EXL2__MEMBER(exl2_kernel_cache, load), EXL2__MEMBER(exl2_kernel_cache, store),
    EXL2__MEMBER(exl2_kernel_cache, user),
    EXL2__MEMBER(exl2_logger, line), EXL2__MEMBER(exl2_logger, user), EXL2__MEMBER(exl2_logger, max_level),
    EXL2__MEMBER(exl2_zones, begin), EXL2__MEMBER(exl2_zones, end), EXL2__MEMBER(exl2_zones, user),
    EXL2__MEMBER(exl2_zones, unit),
    EXL2__MEMBER(exl2_parallel, run), EXL2__MEMBER(exl2_parallel, width), EXL2__MEMBER(exl2_parallel, user),
    EXL2__MEMBER(exl2_device_desc, _start_canary), EXL2__MEMBER(exl2_device_desc, pick),
    EXL2__MEMBER(exl2_device_desc, index), EXL2__MEMBER(exl2_device_desc, uuid),
    EXL2__MEMBER(exl2_device_desc, luid), EXL2__MEMBER(exl2_device_desc, cuda_context),
    EXL2__MEMBER(exl2_device_desc, shared_bytes_max), EXL2__MEMBER(exl2_device_desc, stream_priority),
    EXL2__MEMBER(exl2_device_desc, bytes_max), EXL2__MEMBER(exl2_device_desc, gpu_us),
    EXL2__MEMBER(exl2_device_desc, _end_canary),
    EXL2__MEMBER(exl2_device_info, name), EXL2__MEMBER(exl2_device_info, uuid), EXL2__MEMBER(exl2_device_info, luid),
    EXL2__MEMBER(exl2_device_info, bytes_total), EXL2__MEMBER(exl2_device_info, index),
    EXL2__MEMBER(exl2_device_info, arch), EXL2__MEMBER(exl2_device_info, usable),
    EXL2__MEMBER(exl2_device_info, why_not),
    EXL2__MEMBER(exl2_device_speed, index), EXL2__MEMBER(exl2_device_speed, read_bytes_s),
    EXL2__MEMBER(exl2_device_speed, copy_bytes_s),
    EXL2__MEMBER(exl2_engine_desc, _start_canary), EXL2__MEMBER(exl2_engine_desc, backend),
    EXL2__MEMBER(exl2_engine_desc, devices), EXL2__MEMBER(exl2_engine_desc, device_count),
    EXL2__MEMBER(exl2_engine_desc, cpu_path_max), EXL2__MEMBER(exl2_engine_desc, host_bytes_max),
    EXL2__MEMBER(exl2_engine_desc, device_bytes_max), EXL2__MEMBER(exl2_engine_desc, max_models),
    EXL2__MEMBER(exl2_engine_desc, max_sessions), EXL2__MEMBER(exl2_engine_desc, max_jobs),
    EXL2__MEMBER(exl2_engine_desc, max_events), EXL2__MEMBER(exl2_engine_desc, nvrtc_path),
    EXL2__MEMBER(exl2_engine_desc, allocator), EXL2__MEMBER(exl2_engine_desc, files),
    EXL2__MEMBER(exl2_engine_desc, kernel_cache), EXL2__MEMBER(exl2_engine_desc, log),
    EXL2__MEMBER(exl2_engine_desc, zones), EXL2__MEMBER(exl2_engine_desc, parallel),
    EXL2__MEMBER(exl2_engine_desc, load_thread), EXL2__MEMBER(exl2_engine_desc, open_error),
    EXL2__MEMBER(exl2_engine_desc, _end_canary),
    EXL2__MEMBER(exl2_link_speed, direct), EXL2__MEMBER(exl2_link_speed, us), EXL2__MEMBER(exl2_link_speed, bytes_s),
    EXL2__MEMBER(exl2_engine_info, backend), EXL2__MEMBER(exl2_engine_info, device),
    EXL2__MEMBER(exl2_engine_info, devices), EXL2__MEMBER(exl2_engine_info, device_count),
    EXL2__MEMBER(exl2_engine_info, peers),
    EXL2__MEMBER(exl2_engine_info, cpu_path), EXL2__MEMBER(exl2_engine_info, max_models),
    EXL2__MEMBER(exl2_engine_info, max_sessions), EXL2__MEMBER(exl2_engine_info, max_jobs),
    EXL2__MEMBER(exl2_engine_info, max_events), EXL2__MEMBER(exl2_engine_info, host_bytes_max),
    EXL2__MEMBER(exl2_engine_info, device_bytes_max),
    EXL2__MEMBER(exl2_job_stats, prompt_tokens), EXL2__MEMBER(exl2_job_stats, reused_tokens),
    EXL2__MEMBER(exl2_job_stats, new_tokens), EXL2__MEMBER(exl2_job_stats, forced_tokens),
    EXL2__MEMBER(exl2_job_stats, drafted), EXL2__MEMBER(exl2_job_stats, accepted),
    EXL2__MEMBER(exl2_job_stats, seed), EXL2__MEMBER(exl2_job_stats, queued_ns),
    EXL2__MEMBER(exl2_job_stats, prefill_ns), EXL2__MEMBER(exl2_job_stats, decode_ns),
    EXL2__MEMBER(exl2_job_stats, bans_avoided), EXL2__MEMBER(exl2_job_stats, bans_shown),
    EXL2__MEMBER(exl2_job_stats, stop_string), EXL2__MEMBER(exl2_job_stats, image_rows),
    EXL2__MEMBER(exl2_job_stats, image_ns),
    EXL2__MEMBER(exl2_alt, token), EXL2__MEMBER(exl2_alt, logprob),
    EXL2__MEMBER(exl2_event, kind), EXL2__MEMBER(exl2_event, model), EXL2__MEMBER(exl2_event, session),
    EXL2__MEMBER(exl2_event, job), EXL2__MEMBER(exl2_event, lora), EXL2__MEMBER(exl2_event, user),
    EXL2__MEMBER(exl2_event, text),
    EXL2__MEMBER(exl2_event, bytes), EXL2__MEMBER(exl2_event, tokens), EXL2__MEMBER(exl2_event, token_count),
    EXL2__MEMBER(exl2_event, alts), EXL2__MEMBER(exl2_event, alts_per_token), EXL2__MEMBER(exl2_event, logsumexp),
    EXL2__MEMBER(exl2_event, values), EXL2__MEMBER(exl2_event, value_count),
    EXL2__MEMBER(exl2_event, progress), EXL2__MEMBER(exl2_event, stop), EXL2__MEMBER(exl2_event, result),
    EXL2__MEMBER(exl2_event, error), EXL2__MEMBER(exl2_event, stats), EXL2__MEMBER(exl2_event, image),
    EXL2__MEMBER(exl2_step_desc, _start_canary), EXL2__MEMBER(exl2_step_desc, cpu_us),
    EXL2__MEMBER(exl2_step_desc, gpu_us), EXL2__MEMBER(exl2_step_desc, wait),
    EXL2__MEMBER(exl2_step_desc, _end_canary),
    EXL2__MEMBER(exl2_engine_stats, host_bytes), EXL2__MEMBER(exl2_engine_stats, host_peak),
    EXL2__MEMBER(exl2_engine_stats, device_bytes), EXL2__MEMBER(exl2_engine_stats, device_peak),
    EXL2__MEMBER(exl2_engine_stats, devices_bytes), EXL2__MEMBER(exl2_engine_stats, devices_peak),
    EXL2__MEMBER(exl2_engine_stats, kernels_compiled), EXL2__MEMBER(exl2_engine_stats, allocations),
    EXL2__MEMBER(exl2_engine_stats, pages_total), EXL2__MEMBER(exl2_engine_stats, pages_used),
    EXL2__MEMBER(exl2_engine_stats, pages_shared), EXL2__MEMBER(exl2_engine_stats, pages_cached),
    EXL2__MEMBER(exl2_engine_stats, pages_host),
    EXL2__MEMBER(exl2_engine_stats, jobs_active), EXL2__MEMBER(exl2_engine_stats, jobs_waiting),
    EXL2__MEMBER(exl2_engine_stats, pages_out), EXL2__MEMBER(exl2_engine_stats, pages_in),
    EXL2__MEMBER(exl2_engine_stats, evictions), EXL2__MEMBER(exl2_engine_stats, preemptions),
    EXL2__MEMBER(exl2_engine_stats, steps), EXL2__MEMBER(exl2_engine_stats, forwards),
    EXL2__MEMBER(exl2_engine_stats, tokens_in), EXL2__MEMBER(exl2_engine_stats, tokens_out),
    EXL2__MEMBER(exl2_engine_stats, forced_tokens), EXL2__MEMBER(exl2_engine_stats, drafted),
    EXL2__MEMBER(exl2_engine_stats, accepted), EXL2__MEMBER(exl2_engine_stats, cpu_sampled),
    EXL2__MEMBER(exl2_engine_stats, last_step_ns), EXL2__MEMBER(exl2_engine_stats, slowest_step_ns),
    EXL2__MEMBER(exl2_cache_desc, _start_canary), EXL2__MEMBER(exl2_cache_desc, tokens),
    EXL2__MEMBER(exl2_cache_desc, no_reuse), EXL2__MEMBER(exl2_cache_desc, full),
    EXL2__MEMBER(exl2_cache_desc, format), EXL2__MEMBER(exl2_cache_desc, host_bytes),
    EXL2__MEMBER(exl2_cache_desc, _end_canary),
    EXL2__MEMBER(exl2_card, device), EXL2__MEMBER(exl2_card, bytes_max), EXL2__MEMBER(exl2_card, share),
    EXL2__MEMBER(exl2_vision_desc, _start_canary), EXL2__MEMBER(exl2_vision_desc, images),
    EXL2__MEMBER(exl2_vision_desc, rows), EXL2__MEMBER(exl2_vision_desc, pixels_max),
    EXL2__MEMBER(exl2_vision_desc, max_rows), EXL2__MEMBER(exl2_vision_desc, max_tiles),
    EXL2__MEMBER(exl2_vision_desc, _end_canary),
    EXL2__MEMBER(exl2_model_desc, _start_canary), EXL2__MEMBER(exl2_model_desc, path),
    EXL2__MEMBER(exl2_model_desc, cache), EXL2__MEMBER(exl2_model_desc, context_max),
    EXL2__MEMBER(exl2_model_desc, text_only), EXL2__MEMBER(exl2_model_desc, prefill_chunk),
    EXL2__MEMBER(exl2_model_desc, batch_max), EXL2__MEMBER(exl2_model_desc, experts_active),
    EXL2__MEMBER(exl2_model_desc, lora_max), EXL2__MEMBER(exl2_model_desc, lora_rank_max),
    EXL2__MEMBER(exl2_model_desc, steer_max),
    EXL2__MEMBER(exl2_model_desc, keep_packed), EXL2__MEMBER(exl2_model_desc, grammars),
    EXL2__MEMBER(exl2_model_desc, rope_scale), EXL2__MEMBER(exl2_model_desc, rope_alpha),
    EXL2__MEMBER(exl2_model_desc, yarn_factor), EXL2__MEMBER(exl2_model_desc, cards),
    EXL2__MEMBER(exl2_model_desc, card_count), EXL2__MEMBER(exl2_model_desc, split_auto),
    EXL2__MEMBER(exl2_model_desc, split),
    EXL2__MEMBER(exl2_model_desc, offload),
    EXL2__MEMBER(exl2_model_desc, host_mlps), EXL2__MEMBER(exl2_model_desc, host_prompts),
    EXL2__MEMBER(exl2_model_desc, vision),
    EXL2__MEMBER(exl2_model_desc, on_event),
    EXL2__MEMBER(exl2_model_desc, user), EXL2__MEMBER(exl2_model_desc, _end_canary),
    EXL2__MEMBER(exl2_rope_info, kind), EXL2__MEMBER(exl2_rope_info, theta), EXL2__MEMBER(exl2_rope_info, factor),
    EXL2__MEMBER(exl2_card_info, device), EXL2__MEMBER(exl2_card_info, first_layer),
    EXL2__MEMBER(exl2_card_info, layers), EXL2__MEMBER(exl2_card_info, weight_bytes),
    EXL2__MEMBER(exl2_card_info, cache_bytes), EXL2__MEMBER(exl2_card_info, scratch_bytes),
    EXL2__MEMBER(exl2_card_info, host_mlps), EXL2__MEMBER(exl2_card_info, host_prompts),
    EXL2__MEMBER(exl2_card_info, columns),
    EXL2__MEMBER(exl2_model_info, arch), EXL2__MEMBER(exl2_model_info, norms), EXL2__MEMBER(exl2_model_info, family),
    EXL2__MEMBER(exl2_model_info, format), EXL2__MEMBER(exl2_model_info, dequantized),
    EXL2__MEMBER(exl2_model_info, head_dim), EXL2__MEMBER(exl2_model_info, window),
    EXL2__MEMBER(exl2_model_info, windowed), EXL2__MEMBER(exl2_model_info, ropes),
    EXL2__MEMBER(exl2_model_info, rope_count), EXL2__MEMBER(exl2_model_info, needs_bos),
    EXL2__MEMBER(exl2_model_info, tower_skipped), EXL2__MEMBER(exl2_model_info, parallel),
    EXL2__MEMBER(exl2_model_info, vocab), EXL2__MEMBER(exl2_model_info, hidden),
    EXL2__MEMBER(exl2_model_info, layers), EXL2__MEMBER(exl2_model_info, heads),
    EXL2__MEMBER(exl2_model_info, kv_heads), EXL2__MEMBER(exl2_model_info, context_max),
    EXL2__MEMBER(exl2_model_info, experts), EXL2__MEMBER(exl2_model_info, experts_active),
    EXL2__MEMBER(exl2_model_info, bits_per_weight), EXL2__MEMBER(exl2_model_info, weight_bytes),
    EXL2__MEMBER(exl2_model_info, cache_bytes), EXL2__MEMBER(exl2_model_info, scratch_bytes),
    EXL2__MEMBER(exl2_model_info, tower), EXL2__MEMBER(exl2_model_info, tower_bytes),
    EXL2__MEMBER(exl2_model_info, image_bytes),
    EXL2__MEMBER(exl2_model_info, device_bytes), EXL2__MEMBER(exl2_model_info, host_mlps),
    EXL2__MEMBER(exl2_model_info, host_prompts),
    EXL2__MEMBER(exl2_model_info, host_weight_bytes), EXL2__MEMBER(exl2_model_info, cards),
    EXL2__MEMBER(exl2_model_info, card_count), EXL2__MEMBER(exl2_model_info, cache_bytes_per_token),
    EXL2__MEMBER(exl2_model_info, cache_tokens), EXL2__MEMBER(exl2_model_info, window_tokens),
    EXL2__MEMBER(exl2_model_info, window_bytes), EXL2__MEMBER(exl2_model_info, host_pages),
    EXL2__MEMBER(exl2_model_info, pass_bytes), EXL2__MEMBER(exl2_model_info, row_weights),
    EXL2__MEMBER(exl2_model_info, bos),
    EXL2__MEMBER(exl2_model_info, eos), EXL2__MEMBER(exl2_model_info, has_tokenizer),
    EXL2__MEMBER(exl2_model_info, has_chat_template), EXL2__MEMBER(exl2_model_info, has_head),
    EXL2__MEMBER(exl2_model_info, embed_pool), EXL2__MEMBER(exl2_model_info, embed_raw),
    EXL2__MEMBER(exl2_model_info, reads_tools),
    EXL2__MEMBER(exl2_model_info, reads_tool_calls), EXL2__MEMBER(exl2_model_info, content_id),
    EXL2__MEMBER(exl2_arch_info, name), EXL2__MEMBER(exl2_arch_info, family), EXL2__MEMBER(exl2_arch_info, reason),
    EXL2__MEMBER(exl2_arch_info, golden), EXL2__MEMBER(exl2_arch_info, differs),
    EXL2__MEMBER(exl2_lora_desc, _start_canary), EXL2__MEMBER(exl2_lora_desc, model),
    EXL2__MEMBER(exl2_lora_desc, path), EXL2__MEMBER(exl2_lora_desc, on_event), EXL2__MEMBER(exl2_lora_desc, user),
    EXL2__MEMBER(exl2_lora_desc, _end_canary),
    EXL2__MEMBER(exl2_lora_info, content_id), EXL2__MEMBER(exl2_lora_info, rank_max),
    EXL2__MEMBER(exl2_lora_info, matrices), EXL2__MEMBER(exl2_lora_info, bytes),
    EXL2__MEMBER(exl2_lora_info, device_bytes), EXL2__MEMBER(exl2_lora_info, warning),
    EXL2__MEMBER(exl2_steer_desc, _start_canary), EXL2__MEMBER(exl2_steer_desc, model),
    EXL2__MEMBER(exl2_steer_desc, path), EXL2__MEMBER(exl2_steer_desc, values),
    EXL2__MEMBER(exl2_steer_desc, first_layer), EXL2__MEMBER(exl2_steer_desc, layer_count),
    EXL2__MEMBER(exl2_steer_desc, _end_canary),
    EXL2__MEMBER(exl2_steer_info, content_id), EXL2__MEMBER(exl2_steer_info, layers),
    EXL2__MEMBER(exl2_steer_info, largest), EXL2__MEMBER(exl2_steer_info, bytes),
    EXL2__MEMBER(exl2_message, role), EXL2__MEMBER(exl2_message, text), EXL2__MEMBER(exl2_message, name),
    EXL2__MEMBER(exl2_message, reasoning), EXL2__MEMBER(exl2_message, tool_calls),
    EXL2__MEMBER(exl2_message, tool_call_id), EXL2__MEMBER(exl2_message, fields),
    EXL2__MEMBER(exl2_message, images), EXL2__MEMBER(exl2_message, image_count),
    EXL2__MEMBER(exl2_chat_desc, _start_canary), EXL2__MEMBER(exl2_chat_desc, template_text),
    EXL2__MEMBER(exl2_chat_desc, template_name), EXL2__MEMBER(exl2_chat_desc, tools),
    EXL2__MEMBER(exl2_chat_desc, documents), EXL2__MEMBER(exl2_chat_desc, variables),
    EXL2__MEMBER(exl2_chat_desc, special_tokens), EXL2__MEMBER(exl2_chat_desc, now),
    EXL2__MEMBER(exl2_chat_desc, close_reply), EXL2__MEMBER(exl2_chat_desc, begun_reply),
    EXL2__MEMBER(exl2_chat_desc, _end_canary),
    EXL2__MEMBER(exl2_session_info, model), EXL2__MEMBER(exl2_session_info, busy_with),
    EXL2__MEMBER(exl2_session_info, tokens), EXL2__MEMBER(exl2_session_info, tokens_cached),
    EXL2__MEMBER(exl2_session_info, context_max), EXL2__MEMBER(exl2_session_info, pages),
    EXL2__MEMBER(exl2_session_info, pages_shared), EXL2__MEMBER(exl2_session_info, resumes),
    EXL2__MEMBER(exl2_session_info, pictures_missing),
    EXL2__MEMBER(exl2_bias, token), EXL2__MEMBER(exl2_bias, add),
    EXL2__MEMBER(exl2_sampler_desc, _start_canary), EXL2__MEMBER(exl2_sampler_desc, preset),
    EXL2__MEMBER(exl2_sampler_desc, greedy), EXL2__MEMBER(exl2_sampler_desc, seed),
    EXL2__MEMBER(exl2_sampler_desc, top_k), EXL2__MEMBER(exl2_sampler_desc, temperature),
    EXL2__MEMBER(exl2_sampler_desc, top_p), EXL2__MEMBER(exl2_sampler_desc, min_p),
    EXL2__MEMBER(exl2_sampler_desc, top_a), EXL2__MEMBER(exl2_sampler_desc, tail_free),
    EXL2__MEMBER(exl2_sampler_desc, typical), EXL2__MEMBER(exl2_sampler_desc, smoothing),
    EXL2__MEMBER(exl2_sampler_desc, skew), EXL2__MEMBER(exl2_sampler_desc, temperature_last),
    EXL2__MEMBER(exl2_sampler_desc, dynamic_min), EXL2__MEMBER(exl2_sampler_desc, dynamic_max),
    EXL2__MEMBER(exl2_sampler_desc, dynamic_exponent), EXL2__MEMBER(exl2_sampler_desc, repeat_penalty),
    EXL2__MEMBER(exl2_sampler_desc, frequency_penalty), EXL2__MEMBER(exl2_sampler_desc, presence_penalty),
    EXL2__MEMBER(exl2_sampler_desc, penalty_range), EXL2__MEMBER(exl2_sampler_desc, penalty_decay),
    EXL2__MEMBER(exl2_sampler_desc, dry_multiplier), EXL2__MEMBER(exl2_sampler_desc, dry_base),
    EXL2__MEMBER(exl2_sampler_desc, dry_allowed), EXL2__MEMBER(exl2_sampler_desc, dry_range),
    EXL2__MEMBER(exl2_sampler_desc, dry_match_max), EXL2__MEMBER(exl2_sampler_desc, dry_breakers),
    EXL2__MEMBER(exl2_sampler_desc, dry_breaker_count), EXL2__MEMBER(exl2_sampler_desc, xtc_probability),
    EXL2__MEMBER(exl2_sampler_desc, xtc_threshold), EXL2__MEMBER(exl2_sampler_desc, xtc_keep),
    EXL2__MEMBER(exl2_sampler_desc, xtc_keep_count), EXL2__MEMBER(exl2_sampler_desc, mirostat_tau),
    EXL2__MEMBER(exl2_sampler_desc, mirostat_eta), EXL2__MEMBER(exl2_sampler_desc, adaptive_target),
    EXL2__MEMBER(exl2_sampler_desc, adaptive_decay), EXL2__MEMBER(exl2_sampler_desc, bias),
    EXL2__MEMBER(exl2_sampler_desc, bias_count), EXL2__MEMBER(exl2_sampler_desc, allow),
    EXL2__MEMBER(exl2_sampler_desc, allow_count), EXL2__MEMBER(exl2_sampler_desc, ban),
    EXL2__MEMBER(exl2_sampler_desc, ban_count), EXL2__MEMBER(exl2_sampler_desc, _end_canary),
    EXL2__MEMBER(exl2_grammar_desc, _start_canary), EXL2__MEMBER(exl2_grammar_desc, model),
    EXL2__MEMBER(exl2_grammar_desc, kind), EXL2__MEMBER(exl2_grammar_desc, source),
    EXL2__MEMBER(exl2_grammar_desc, source_bytes), EXL2__MEMBER(exl2_grammar_desc, cache_bytes),
    EXL2__MEMBER(exl2_grammar_desc, strict), EXL2__MEMBER(exl2_grammar_desc, prefer_end),
    EXL2__MEMBER(exl2_grammar_desc, allow), EXL2__MEMBER(exl2_grammar_desc, user),
    EXL2__MEMBER(exl2_grammar_desc, _end_canary),
    EXL2__MEMBER(exl2_prompt, text), EXL2__MEMBER(exl2_prompt, text_bytes), EXL2__MEMBER(exl2_prompt, tokens),
    EXL2__MEMBER(exl2_prompt, token_count), EXL2__MEMBER(exl2_prompt, messages),
    EXL2__MEMBER(exl2_prompt, message_count), EXL2__MEMBER(exl2_prompt, flags), EXL2__MEMBER(exl2_prompt, images),
    EXL2__MEMBER(exl2_prompt, image_count),
    EXL2__MEMBER(exl2_draft_desc, _start_canary), EXL2__MEMBER(exl2_draft_desc, model),
    EXL2__MEMBER(exl2_draft_desc, tokens), EXL2__MEMBER(exl2_draft_desc, ngram),
    EXL2__MEMBER(exl2_draft_desc, one_by_one), EXL2__MEMBER(exl2_draft_desc, _end_canary),
    EXL2__MEMBER(exl2_embed_desc, _start_canary), EXL2__MEMBER(exl2_embed_desc, pool),
    EXL2__MEMBER(exl2_embed_desc, raw), EXL2__MEMBER(exl2_embed_desc, layer),
    EXL2__MEMBER(exl2_embed_desc, _end_canary),
    EXL2__MEMBER(exl2_lora_use, lora), EXL2__MEMBER(exl2_lora_use, scale),
    EXL2__MEMBER(exl2_steer_use, steer), EXL2__MEMBER(exl2_steer_use, factor),
    EXL2__MEMBER(exl2_job_desc, _start_canary), EXL2__MEMBER(exl2_job_desc, model),
    EXL2__MEMBER(exl2_job_desc, session), EXL2__MEMBER(exl2_job_desc, prompt), EXL2__MEMBER(exl2_job_desc, chat),
    EXL2__MEMBER(exl2_job_desc, max_tokens), EXL2__MEMBER(exl2_job_desc, min_tokens),
    EXL2__MEMBER(exl2_job_desc, reserve),
    EXL2__MEMBER(exl2_job_desc, resume), EXL2__MEMBER(exl2_job_desc, prefill_only),
    EXL2__MEMBER(exl2_job_desc, score_prompt), EXL2__MEMBER(exl2_job_desc, show_markers),
    EXL2__MEMBER(exl2_job_desc, heal_prompt), EXL2__MEMBER(exl2_job_desc, sampler),
    EXL2__MEMBER(exl2_job_desc, loras), EXL2__MEMBER(exl2_job_desc, lora_count),
    EXL2__MEMBER(exl2_job_desc, steers), EXL2__MEMBER(exl2_job_desc, steer_count),
    EXL2__MEMBER(exl2_job_desc, grammar), EXL2__MEMBER(exl2_job_desc, grammars),
    EXL2__MEMBER(exl2_job_desc, grammar_count), EXL2__MEMBER(exl2_job_desc, draft),
    EXL2__MEMBER(exl2_job_desc, embed),
    EXL2__MEMBER(exl2_job_desc, stop_strings), EXL2__MEMBER(exl2_job_desc, stop_string_count),
    EXL2__MEMBER(exl2_job_desc, ban_strings), EXL2__MEMBER(exl2_job_desc, ban_string_count),
    EXL2__MEMBER(exl2_job_desc, stop_tokens), EXL2__MEMBER(exl2_job_desc, stop_token_count),
    EXL2__MEMBER(exl2_job_desc, loop_stop), EXL2__MEMBER(exl2_job_desc, alts_per_token),
    EXL2__MEMBER(exl2_job_desc, guidance), EXL2__MEMBER(exl2_job_desc, negative_session),
    EXL2__MEMBER(exl2_job_desc, negative_prompt), EXL2__MEMBER(exl2_job_desc, priority),
    EXL2__MEMBER(exl2_job_desc, on_logits), EXL2__MEMBER(exl2_job_desc, on_token),
    EXL2__MEMBER(exl2_job_desc, on_event), EXL2__MEMBER(exl2_job_desc, user),
    EXL2__MEMBER(exl2_job_desc, _end_canary),
    EXL2__MEMBER(exl2_job_info, state), EXL2__MEMBER(exl2_job_info, session), EXL2__MEMBER(exl2_job_info, stats),
    EXL2__MEMBER(exl2_job_size, prompt_tokens), EXL2__MEMBER(exl2_job_size, reused_tokens),
    EXL2__MEMBER(exl2_job_size, max_tokens), EXL2__MEMBER(exl2_job_size, context_tokens),
    EXL2__MEMBER(exl2_job_size, context_max), EXL2__MEMBER(exl2_job_size, pages_needed),
    EXL2__MEMBER(exl2_job_size, pages_free),
    EXL2__MEMBER(exl2_kernel_build_desc, _start_canary), EXL2__MEMBER(exl2_kernel_build_desc, archs),
    EXL2__MEMBER(exl2_kernel_build_desc, arch_count), EXL2__MEMBER(exl2_kernel_build_desc, converter),
    EXL2__MEMBER(exl2_kernel_build_desc, nvrtc_path), EXL2__MEMBER(exl2_kernel_build_desc, into),
    EXL2__MEMBER(exl2_kernel_build_desc, allocator), EXL2__MEMBER(exl2_kernel_build_desc, log),
    EXL2__MEMBER(exl2_kernel_build_desc, parallel), EXL2__MEMBER(exl2_kernel_build_desc, error),
    EXL2__MEMBER(exl2_kernel_build_desc, _end_canary),
    EXL2__MEMBER(exl2_image_desc, _start_canary), EXL2__MEMBER(exl2_image_desc, model),
    EXL2__MEMBER(exl2_image_desc, format), EXL2__MEMBER(exl2_image_desc, width), EXL2__MEMBER(exl2_image_desc, height),
    EXL2__MEMBER(exl2_image_desc, stride), EXL2__MEMBER(exl2_image_desc, pixels),
    EXL2__MEMBER(exl2_image_desc, frames), EXL2__MEMBER(exl2_image_desc, fps),
    EXL2__MEMBER(exl2_image_desc, max_rows), EXL2__MEMBER(exl2_image_desc, max_tiles),
    EXL2__MEMBER(exl2_image_desc, on_event), EXL2__MEMBER(exl2_image_desc, user),
    EXL2__MEMBER(exl2_image_desc, silent), EXL2__MEMBER(exl2_image_desc, _end_canary),
    EXL2__MEMBER(exl2_image_info, state), EXL2__MEMBER(exl2_image_info, result), EXL2__MEMBER(exl2_image_info, id),
    EXL2__MEMBER(exl2_image_info, width), EXL2__MEMBER(exl2_image_info, height), EXL2__MEMBER(exl2_image_info, tiles),
    EXL2__MEMBER(exl2_image_info, grid), EXL2__MEMBER(exl2_image_info, rows), EXL2__MEMBER(exl2_image_info, tokens),
    EXL2__MEMBER(exl2_image_info, bytes), EXL2__MEMBER(exl2_image_info, encode_ns),
    EXL2__MEMBER(exl2_image_info, operations),
    EXL2__MEMBER(exl2_picture, from), EXL2__MEMBER(exl2_picture, count), EXL2__MEMBER(exl2_picture, rows),
    EXL2__MEMBER(exl2_picture, missing), EXL2__MEMBER(exl2_picture, id),
#ifdef EXL2_CONVERT
    EXL2__MEMBER(exl2_import_info, arch), EXL2__MEMBER(exl2_import_info, from),
    EXL2__MEMBER(exl2_import_info, tokenizer), EXL2__MEMBER(exl2_import_info, warning),
    EXL2__MEMBER(exl2_import_info, tensors), EXL2__MEMBER(exl2_import_info, bits),
    EXL2__MEMBER(exl2_import_desc, _start_canary), EXL2__MEMBER(exl2_import_desc, gguf_path),
    EXL2__MEMBER(exl2_import_desc, out_dir), EXL2__MEMBER(exl2_import_desc, bits),
    EXL2__MEMBER(exl2_import_desc, group), EXL2__MEMBER(exl2_import_desc, head_bits),
    EXL2__MEMBER(exl2_import_desc, no_tokenizer), EXL2__MEMBER(exl2_import_desc, progress),
    EXL2__MEMBER(exl2_import_desc, user), EXL2__MEMBER(exl2_import_desc, parallel),
    EXL2__MEMBER(exl2_import_desc, error), EXL2__MEMBER(exl2_import_desc, info),
    EXL2__MEMBER(exl2_import_desc, _end_canary),
    EXL2__MEMBER(exl2_convert_matrix, name), EXL2__MEMBER(exl2_convert_matrix, in),
    EXL2__MEMBER(exl2_convert_matrix, out), EXL2__MEMBER(exl2_convert_matrix, bpw),
    EXL2__MEMBER(exl2_convert_matrix, rows), EXL2__MEMBER(exl2_convert_matrix, loss),
    EXL2__MEMBER(exl2_convert_matrix, kl),
    EXL2__MEMBER(exl2_convert_plan, bpw), EXL2__MEMBER(exl2_convert_plan, bpw_least),
    EXL2__MEMBER(exl2_convert_plan, bpw_most), EXL2__MEMBER(exl2_convert_plan, bytes),
    EXL2__MEMBER(exl2_convert_plan, bytes_least), EXL2__MEMBER(exl2_convert_plan, bytes_most),
    EXL2__MEMBER(exl2_convert_plan, disk_bytes), EXL2__MEMBER(exl2_convert_plan, host_bytes),
    EXL2__MEMBER(exl2_convert_plan, device_bytes), EXL2__MEMBER(exl2_convert_plan, streamed),
    EXL2__MEMBER(exl2_convert_plan, own_text),
    EXL2__MEMBER(exl2_convert_info, arch), EXL2__MEMBER(exl2_convert_info, bpw),
    EXL2__MEMBER(exl2_convert_info, head_bpw), EXL2__MEMBER(exl2_convert_info, warning),
    EXL2__MEMBER(exl2_convert_info, bytes), EXL2__MEMBER(exl2_convert_info, matrices),
    EXL2__MEMBER(exl2_convert_info, rows), EXL2__MEMBER(exl2_convert_info, length),
    EXL2__MEMBER(exl2_convert_info, predicted_kl), EXL2__MEMBER(exl2_convert_info, kl),
    EXL2__MEMBER(exl2_convert_info, top1), EXL2__MEMBER(exl2_convert_info, nll_before),
    EXL2__MEMBER(exl2_convert_info, nll_after), EXL2__MEMBER(exl2_convert_info, backend),
    EXL2__MEMBER(exl2_convert_info, host_peak), EXL2__MEMBER(exl2_convert_info, device_peak),
    EXL2__MEMBER(exl2_convert_info, stage_seconds),
    EXL2__MEMBER(exl2_convert_lora, folder), EXL2__MEMBER(exl2_convert_lora, scale),
    EXL2__MEMBER(exl2_convert_desc, _start_canary), EXL2__MEMBER(exl2_convert_desc, source_dir),
    EXL2__MEMBER(exl2_convert_desc, out_dir), EXL2__MEMBER(exl2_convert_desc, work_dir),
    EXL2__MEMBER(exl2_convert_desc, bpw), EXL2__MEMBER(exl2_convert_desc, size_bytes),
    EXL2__MEMBER(exl2_convert_desc, head_bits), EXL2__MEMBER(exl2_convert_desc, calibration_files),
    EXL2__MEMBER(exl2_convert_desc, calibration_file_count), EXL2__MEMBER(exl2_convert_desc, rows),
    EXL2__MEMBER(exl2_convert_desc, length), EXL2__MEMBER(exl2_convert_desc, seed),
    EXL2__MEMBER(exl2_convert_desc, rope_scale), EXL2__MEMBER(exl2_convert_desc, rope_alpha),
    EXL2__MEMBER(exl2_convert_desc, yarn_factor),
    EXL2__MEMBER(exl2_convert_desc, random_ids), EXL2__MEMBER(exl2_convert_desc, measurement_file),
    EXL2__MEMBER(exl2_convert_desc, measure_only), EXL2__MEMBER(exl2_convert_desc, loras),
    EXL2__MEMBER(exl2_convert_desc, lora_count), EXL2__MEMBER(exl2_convert_desc, bits),
    EXL2__MEMBER(exl2_convert_desc, corrected),
    EXL2__MEMBER(exl2_convert_desc, shard_bytes), EXL2__MEMBER(exl2_convert_desc, host_bytes_max),
    EXL2__MEMBER(exl2_convert_desc, backend), EXL2__MEMBER(exl2_convert_desc, device),
    EXL2__MEMBER(exl2_convert_desc, device_bytes_max), EXL2__MEMBER(exl2_convert_desc, kernel_cache),
    EXL2__MEMBER(exl2_convert_desc, nvrtc_path), EXL2__MEMBER(exl2_convert_desc, progress),
    EXL2__MEMBER(exl2_convert_desc, on_plan), EXL2__MEMBER(exl2_convert_desc, on_matrix),
    EXL2__MEMBER(exl2_convert_desc, user), EXL2__MEMBER(exl2_convert_desc, parallel),
    EXL2__MEMBER(exl2_convert_desc, error), EXL2__MEMBER(exl2_convert_desc, info),
    EXL2__MEMBER(exl2_convert_desc, _end_canary),
    EXL2__MEMBER(exl2_compare_info, tokens), EXL2__MEMBER(exl2_compare_info, nll_a),
    EXL2__MEMBER(exl2_compare_info, nll_b), EXL2__MEMBER(exl2_compare_info, kl),
    EXL2__MEMBER(exl2_compare_info, kl_p99), EXL2__MEMBER(exl2_compare_info, top1),
    EXL2__MEMBER(exl2_compare_info, layers), EXL2__MEMBER(exl2_compare_info, streamed),
    EXL2__MEMBER(exl2_compare_layer, error), EXL2__MEMBER(exl2_compare_layer, kl),
    EXL2__MEMBER(exl2_compare_desc, _start_canary), EXL2__MEMBER(exl2_compare_desc, a_dir),
    EXL2__MEMBER(exl2_compare_desc, b_dir), EXL2__MEMBER(exl2_compare_desc, tokens),
    EXL2__MEMBER(exl2_compare_desc, token_count), EXL2__MEMBER(exl2_compare_desc, row),
    EXL2__MEMBER(exl2_compare_desc, nll), EXL2__MEMBER(exl2_compare_desc, layers),
    EXL2__MEMBER(exl2_compare_desc, layer_max), EXL2__MEMBER(exl2_compare_desc, host_bytes_max),
    EXL2__MEMBER(exl2_compare_desc, progress), EXL2__MEMBER(exl2_compare_desc, user),
    EXL2__MEMBER(exl2_compare_desc, parallel), EXL2__MEMBER(exl2_compare_desc, error),
    EXL2__MEMBER(exl2_compare_desc, _end_canary),
    EXL2__MEMBER(exl2_dump_info, in), EXL2__MEMBER(exl2_dump_info, out), EXL2__MEMBER(exl2_dump_info, bits),
    EXL2__MEMBER(exl2_dump_info, codebook),
    EXL2__MEMBER(exl2_dump_desc, _start_canary), EXL2__MEMBER(exl2_dump_desc, model_dir),
    EXL2__MEMBER(exl2_dump_desc, matrix), EXL2__MEMBER(exl2_dump_desc, out_path),
    EXL2__MEMBER(exl2_dump_desc, error), EXL2__MEMBER(exl2_dump_desc, _end_canary),
#endif
};

EXL2_API bool exl2_layout_at(uint32_t index, exl2_layout *out)
{
    if (!out) {
        return false;
    }
    memset(out, 0, sizeof *out);
    if (index >= EXL2__COUNT(exl2__layouts_members)) {
        return false;
    }
    *out = exl2__layouts_members[index];
    return true;
}

/* The row of a member; NULL: exl2.h has no such member. */
EXL2__PRIVATE const exl2_layout *exl2__layouts_find(const exl2_layout *rows, uint32_t count, const exl2_layout *wanted)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(rows[i].type, wanted->type) == 0 && strcmp(rows[i].member, wanted->member) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

EXL2__PRIVATE bool exl2__layouts_names(const exl2_layout *rows, uint32_t count, const char *type)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(rows[i].type, type) == 0) {
            return true;
        }
    }
    return false;
}

/* VERSION: a member of the binding's list lies elsewhere here, or does not exist; or a struct of that list lacks a
   member. */
EXL2__PRIVATE exl2_result exl2__layouts_check(exl2__ctx *c, const exl2_layout *members, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!members[i].type || !members[i].member) {
            return exl2__fail(c, EXL2_ERR_ARG, "exl2_open_binding: member %u has no name", i);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        const exl2_layout *m = &members[i];
        const exl2_layout *ours = exl2__layouts_find(exl2__layouts_members, EXL2__COUNT(exl2__layouts_members), m);
        if (!ours) {
            return exl2__fail(c, EXL2_ERR_VERSION, "the binding has a member %s.%s, which this library does not have",
                              m->type, m->member);
        }
        if (ours->offset != m->offset || ours->bytes != m->bytes) {
            return exl2__fail(c, EXL2_ERR_VERSION,
                              "the binding has %s.%s at offset %u with %u bytes, but the library at %u with %u",
                              m->type, m->member, m->offset, m->bytes, ours->offset, ours->bytes);
        }
    }
    for (uint32_t i = 0; i < EXL2__COUNT(exl2__layouts_members); i++) {
        const exl2_layout *ours = &exl2__layouts_members[i];
        if (exl2__layouts_names(members, count, ours->type) && !exl2__layouts_find(members, count, ours)) {
            return exl2__fail(c, EXL2_ERR_VERSION, "the binding lacks the member %s.%s", ours->type, ours->member);
        }
    }
    bool all = exl2__layouts_names(members, count, "exl2_engine_desc")
            && exl2__layouts_names(members, count, "exl2_error");
    if (!all) {
        return exl2__fail(c, EXL2_ERR_ARG,
                          "exl2_open_binding: the members of exl2_engine_desc and exl2_error must be listed");
    }
    return EXL2_OK;
}

#endif
