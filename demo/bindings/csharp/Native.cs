// Native.cs: the C declarations of exl2.h. Names are those of the header, so that exl2_open_binding can compare each
// member's offset and size with the library's: a mistake here, or a library of another release, gives EXL2_ERR_VERSION.
using System;
using System.Collections.Generic;
using System.Reflection;
using System.Runtime.InteropServices;

namespace Exl2
{
    // Handles: 64-bit ids, passed by value.
    [StructLayout(LayoutKind.Sequential)] struct exl2_model { public ulong id; }
    [StructLayout(LayoutKind.Sequential)] struct exl2_session { public ulong id; }
    [StructLayout(LayoutKind.Sequential)] struct exl2_job { public ulong id; }
    [StructLayout(LayoutKind.Sequential)] struct exl2_grammar { public ulong id; }
    [StructLayout(LayoutKind.Sequential)] struct exl2_lora { public ulong id; }
    [StructLayout(LayoutKind.Sequential)] struct exl2_steer { public ulong id; }
    [StructLayout(LayoutKind.Sequential)] struct exl2_image { public ulong id; }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_error
    {
        public int code, native;
        [MarshalAs(UnmanagedType.ByValArray, SizeConst = 248)] public byte[] text;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_allocator
    {
        public IntPtr alloc_fn, free_fn, device_alloc_fn, device_free_fn, user;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_files
    {
        public IntPtr open, list, read, close, user;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_kernel_cache
    {
        public IntPtr load, store, user;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_logger
    {
        public IntPtr line, user;
        public int max_level;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_zones
    {
        public IntPtr begin, end, user, unit;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_parallel
    {
        public IntPtr run;
        public uint width;
        public IntPtr user;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_device_desc
    {
        public uint _start_canary;
        public int pick;
        public uint index;
        [MarshalAs(UnmanagedType.ByValArray, SizeConst = 16)] public byte[] uuid;
        [MarshalAs(UnmanagedType.ByValArray, SizeConst = 8)] public byte[] luid;
        public IntPtr cuda_context;
        public uint shared_bytes_max;
        public int stream_priority;
        public ulong bytes_max;
        public uint gpu_us;
        public uint _end_canary;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_engine_desc
    {
        public uint _start_canary;
        public int backend;
        public IntPtr devices;
        public uint device_count;
        public int cpu_path_max;
        public ulong host_bytes_max, device_bytes_max;
        public uint max_models, max_sessions, max_jobs, max_events;
        public IntPtr nvrtc_path;
        public exl2_allocator allocator;
        public exl2_files files;
        public exl2_kernel_cache kernel_cache;
        public exl2_logger log;
        public exl2_zones zones;
        public exl2_parallel parallel;
        public int load_thread;
        public IntPtr open_error;
        public uint _end_canary;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_layout
    {
        public IntPtr type, member;
        public uint offset, bytes;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_job_stats
    {
        public uint prompt_tokens, reused_tokens, new_tokens, forced_tokens, drafted, accepted;
        public ulong seed, queued_ns, prefill_ns, decode_ns;
        public uint bans_avoided, bans_shown, stop_string, image_rows;
        public ulong image_ns;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_alt
    {
        public int token;
        public float logprob;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_event
    {
        public int kind;
        public exl2_model model;
        public exl2_session session;
        public exl2_job job;
        public exl2_lora lora;
        public IntPtr user, text;
        public UIntPtr bytes;
        public IntPtr tokens;
        public uint token_count;
        public IntPtr alts;
        public uint alts_per_token;
        public IntPtr logsumexp, values;
        public uint value_count;
        public float progress;
        public int stop, result;
        public IntPtr error;
        public exl2_job_stats stats;
        public exl2_image image;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_step_desc
    {
        public uint _start_canary, cpu_us, gpu_us;
        [MarshalAs(UnmanagedType.I1)] public bool wait;
        public uint _end_canary;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_engine_stats
    {
        public ulong host_bytes, host_peak, device_bytes, device_peak;
        [MarshalAs(UnmanagedType.ByValArray, SizeConst = 8)] public ulong[] devices_bytes;
        [MarshalAs(UnmanagedType.ByValArray, SizeConst = 8)] public ulong[] devices_peak;
        public ulong kernels_compiled, allocations;
        public uint pages_total, pages_used, pages_shared, pages_cached, pages_host, jobs_active, jobs_waiting;
        public ulong pages_out, pages_in, evictions, preemptions, steps, forwards, tokens_in, tokens_out, forced_tokens, drafted,
            accepted, cpu_sampled, last_step_ns, slowest_step_ns;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_cache_desc
    {
        public uint _start_canary;
        public ulong tokens;
        [MarshalAs(UnmanagedType.I1)] public bool no_reuse, full;
        public int format;
        public ulong host_bytes;
        public uint _end_canary;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_card
    {
        public uint device;
        public ulong bytes_max;
        public float share;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_vision_desc
    {
        public uint _start_canary, images, rows, pixels_max, max_rows, max_tiles, _end_canary;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_model_desc
    {
        public uint _start_canary;
        public IntPtr path;
        public exl2_cache_desc cache;
        public uint context_max;
        [MarshalAs(UnmanagedType.I1)] public bool text_only;
        public uint prefill_chunk, batch_max, experts_active, lora_max, lora_rank_max, steer_max;
        [MarshalAs(UnmanagedType.I1)] public bool keep_packed, grammars;
        public float rope_scale, rope_alpha, yarn_factor;
        public IntPtr cards;
        public uint card_count;
        [MarshalAs(UnmanagedType.I1)] public bool split_auto;
        public int split, offload;
        public uint host_mlps;
        [MarshalAs(UnmanagedType.I1)] public bool host_prompts;
        public exl2_vision_desc vision;
        public IntPtr on_event, user;
        public uint _end_canary;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_lora_desc
    {
        public uint _start_canary;
        public exl2_model model;
        public IntPtr path, on_event, user;
        public uint _end_canary;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_lora_info
    {
        [MarshalAs(UnmanagedType.ByValArray, SizeConst = 16)] public byte[] content_id;
        public uint rank_max, matrices;
        public ulong bytes, device_bytes;
        [MarshalAs(UnmanagedType.ByValArray, SizeConst = 128)] public byte[] warning;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_steer_desc
    {
        public uint _start_canary;
        public exl2_model model;
        public IntPtr path, values;
        public uint first_layer, layer_count, _end_canary;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_steer_info
    {
        [MarshalAs(UnmanagedType.ByValArray, SizeConst = 16)] public byte[] content_id;
        public uint layers;
        public float largest;
        public ulong bytes;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_rope_info
    {
        public IntPtr kind;
        public double theta, factor;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_card_info
    {
        public uint device, first_layer, layers;
        public ulong weight_bytes, cache_bytes, scratch_bytes;
        public uint host_mlps;
        [MarshalAs(UnmanagedType.I1)] public bool host_prompts;
        public float columns;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_model_info
    {
        [MarshalAs(UnmanagedType.ByValArray, SizeConst = 64)] public byte[] arch;
        [MarshalAs(UnmanagedType.ByValArray, SizeConst = 64)] public byte[] norms;
        public IntPtr family, format;
        public uint dequantized, head_dim, window;
        [MarshalAs(UnmanagedType.ByValArray, SizeConst = 128)] public uint[] windowed;
        [MarshalAs(UnmanagedType.ByValArray, SizeConst = 2)] public exl2_rope_info[] ropes;
        public uint rope_count;
        [MarshalAs(UnmanagedType.I1)] public bool needs_bos, tower_skipped, parallel;
        public uint vocab, hidden, layers, heads, kv_heads, context_max, experts, experts_active;
        public float bits_per_weight;
        public ulong weight_bytes, cache_bytes, scratch_bytes;
        public IntPtr tower;
        public ulong tower_bytes, image_bytes, device_bytes;
        public uint host_mlps;
        [MarshalAs(UnmanagedType.I1)] public bool host_prompts;
        public ulong host_weight_bytes;
        [MarshalAs(UnmanagedType.ByValArray, SizeConst = 8)] public exl2_card_info[] cards;
        public uint card_count;
        public ulong cache_bytes_per_token, cache_tokens, window_tokens, window_bytes;
        public uint host_pages;
        public ulong pass_bytes, row_weights;
        public int bos, eos;
        [MarshalAs(UnmanagedType.I1)] public bool has_tokenizer, has_chat_template, has_head;
        public int embed_pool;
        [MarshalAs(UnmanagedType.I1)] public bool embed_raw, reads_tools, reads_tool_calls;
        [MarshalAs(UnmanagedType.ByValArray, SizeConst = 16)] public byte[] content_id;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_message
    {
        public IntPtr role, text, name, reasoning, tool_calls, tool_call_id, fields, images;
        public UIntPtr image_count;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_chat_desc
    {
        public uint _start_canary;
        public IntPtr template_text, template_name, tools, documents, variables, special_tokens, now;
        [MarshalAs(UnmanagedType.I1)] public bool close_reply, begun_reply;
        public uint _end_canary;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_session_info
    {
        public exl2_model model;
        public exl2_job busy_with;
        public uint tokens, tokens_cached, context_max, pages, pages_shared;
        [MarshalAs(UnmanagedType.I1)] public bool resumes;
        public uint pictures_missing;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_sampler_desc
    {
        public uint _start_canary;
        public int preset;
        [MarshalAs(UnmanagedType.I1)] public bool greedy;
        public ulong seed;
        public int top_k;
        public float temperature, top_p, min_p, top_a, tail_free, typical, smoothing, skew;
        [MarshalAs(UnmanagedType.I1)] public bool temperature_last;
        public float dynamic_min, dynamic_max, dynamic_exponent, repeat_penalty, frequency_penalty,
            presence_penalty;
        public int penalty_range, penalty_decay;
        public float dry_multiplier, dry_base;
        public int dry_allowed, dry_range, dry_match_max;
        public IntPtr dry_breakers;
        public uint dry_breaker_count;
        public float xtc_probability, xtc_threshold;
        public IntPtr xtc_keep;
        public uint xtc_keep_count;
        public float mirostat_tau, mirostat_eta, adaptive_target, adaptive_decay;
        public IntPtr bias;
        public uint bias_count;
        public IntPtr allow;
        public uint allow_count;
        public IntPtr ban;
        public uint ban_count, _end_canary;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_grammar_desc
    {
        public uint _start_canary;
        public exl2_model model;
        public int kind;
        public IntPtr source;
        public UIntPtr source_bytes;
        public uint cache_bytes;
        [MarshalAs(UnmanagedType.I1)] public bool strict, prefer_end;
        public IntPtr allow, user;
        public uint _end_canary;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_prompt
    {
        public IntPtr text;
        public UIntPtr text_bytes;
        public IntPtr tokens;
        public UIntPtr token_count;
        public IntPtr messages;
        public UIntPtr message_count;
        public uint flags;
        public IntPtr images;
        public UIntPtr image_count;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_draft_desc
    {
        public uint _start_canary;
        public exl2_model model;
        public uint tokens;
        [MarshalAs(UnmanagedType.I1)] public bool ngram, one_by_one;
        public uint _end_canary;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_embed_desc
    {
        public uint _start_canary;
        public int pool;
        [MarshalAs(UnmanagedType.I1)] public bool raw;
        public uint layer, _end_canary;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_lora_use
    {
        public exl2_lora lora;
        public float scale;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_steer_use
    {
        public exl2_steer steer;
        public float factor;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct exl2_job_desc
    {
        public uint _start_canary;
        public exl2_model model;
        public exl2_session session;
        public exl2_prompt prompt;
        public exl2_chat_desc chat;
        public uint max_tokens, min_tokens, reserve;
        [MarshalAs(UnmanagedType.I1)] public bool resume, prefill_only, score_prompt, show_markers, heal_prompt;
        public exl2_sampler_desc sampler;
        public IntPtr loras;
        public uint lora_count;
        public IntPtr steers;
        public uint steer_count;
        public exl2_grammar grammar;
        public IntPtr grammars;
        public uint grammar_count;
        public exl2_draft_desc draft;
        public exl2_embed_desc embed;
        public IntPtr stop_strings;
        public uint stop_string_count;
        public IntPtr ban_strings;
        public uint ban_string_count;
        public IntPtr stop_tokens;
        public uint stop_token_count, loop_stop, alts_per_token;
        public float guidance;
        public exl2_session negative_session;
        public exl2_prompt negative_prompt;
        public int priority;
        public IntPtr on_logits, on_token, on_event, user;
        public uint _end_canary;
    }

    [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
    delegate int EventFn(IntPtr user, IntPtr e);

    static class Native
    {
        public const uint Version = 200; // EXL2_VERSION of the exl2.h that this file was made for
        const string Lib = "exl2";       // libexl2.so, exl2.dll
        const CallingConvention C = CallingConvention.Cdecl;

        [DllImport(Lib, CallingConvention = C)] public static extern IntPtr exl2_result_name(int result);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_open_binding(
            ref exl2_engine_desc d, uint version, exl2_layout[] members, uint count, ref exl2_error error,
            out IntPtr e);
        [DllImport(Lib, CallingConvention = C)] public static extern void exl2_close(IntPtr e);
        [DllImport(Lib, CallingConvention = C)] public static extern void exl2_last_error(
            IntPtr e, ref exl2_error error);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_step(IntPtr e, ref exl2_step_desc d);
        [DllImport(Lib, CallingConvention = C)] [return: MarshalAs(UnmanagedType.I1)]
        public static extern bool exl2_next_event(IntPtr e, out exl2_event ev);
        [DllImport(Lib, CallingConvention = C)] public static extern void exl2_stats(
            IntPtr e, out exl2_engine_stats stats);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_worker_start(IntPtr e);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_model_open(
            IntPtr e, ref exl2_model_desc d, out exl2_model m);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_model_state(IntPtr e, exl2_model m);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_model_get(
            IntPtr e, exl2_model m, ref exl2_model_info info);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_model_close(IntPtr e, exl2_model m);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_lora_open(
            IntPtr e, ref exl2_lora_desc d, out exl2_lora l);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_lora_state(IntPtr e, exl2_lora l);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_lora_close(IntPtr e, exl2_lora l);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_steer_make(
            IntPtr e, ref exl2_steer_desc d, out exl2_steer s);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_steer_close(IntPtr e, exl2_steer s);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_tokenize(
            IntPtr e, exl2_model m, byte[] text, UIntPtr bytes, uint flags, int[] ids, UIntPtr cap, out UIntPtr need);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_chat_tokenize(
            IntPtr e, exl2_model m, ref exl2_prompt prompt, ref exl2_chat_desc d, int[] ids, UIntPtr cap,
            out UIntPtr need);
        [DllImport(Lib, CallingConvention = C)] public static extern UIntPtr exl2_sentence(
            byte[] text, UIntPtr bytes, [MarshalAs(UnmanagedType.I1)] bool whole);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_session_open(
            IntPtr e, exl2_model m, out exl2_session s);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_session_fork(
            IntPtr e, exl2_session s, out exl2_session other);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_session_rewind(
            IntPtr e, exl2_session s, uint tokens);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_session_get(
            IntPtr e, exl2_session s, out exl2_session_info info);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_session_save(
            IntPtr e, exl2_session s, uint flags, byte[] data, UIntPtr cap, out UIntPtr need);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_session_restore(
            IntPtr e, exl2_session s, byte[] data, UIntPtr bytes);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_session_close(IntPtr e, exl2_session s);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_grammar_make(
            IntPtr e, ref exl2_grammar_desc d, out exl2_grammar g);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_grammar_close(IntPtr e, exl2_grammar g);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_job_start(
            IntPtr e, ref exl2_job_desc d, out exl2_job j);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_job_cancel(IntPtr e, exl2_job j);
        [DllImport(Lib, CallingConvention = C)] public static extern int exl2_job_pause(
            IntPtr e, exl2_job j, [MarshalAs(UnmanagedType.I1)] bool paused);

        static readonly Type[] structs = {
            typeof(exl2_model), typeof(exl2_session), typeof(exl2_job), typeof(exl2_grammar), typeof(exl2_lora),
            typeof(exl2_steer), typeof(exl2_image), typeof(exl2_error), typeof(exl2_vision_desc),
            typeof(exl2_allocator), typeof(exl2_files), typeof(exl2_kernel_cache), typeof(exl2_logger),
            typeof(exl2_zones), typeof(exl2_parallel), typeof(exl2_device_desc), typeof(exl2_engine_desc),
            typeof(exl2_layout), typeof(exl2_job_stats), typeof(exl2_alt), typeof(exl2_event), typeof(exl2_step_desc),
            typeof(exl2_engine_stats), typeof(exl2_cache_desc), typeof(exl2_card), typeof(exl2_model_desc),
            typeof(exl2_rope_info), typeof(exl2_card_info), typeof(exl2_model_info), typeof(exl2_message), typeof(exl2_chat_desc), typeof(exl2_session_info),
            typeof(exl2_sampler_desc), typeof(exl2_grammar_desc), typeof(exl2_prompt), typeof(exl2_draft_desc),
            typeof(exl2_embed_desc), typeof(exl2_lora_desc), typeof(exl2_lora_info), typeof(exl2_lora_use),
            typeof(exl2_steer_desc), typeof(exl2_steer_info), typeof(exl2_steer_use),
            typeof(exl2_job_desc) };

        // The bytes of a member, as the marshaller lays it out.
        static uint Bytes(FieldInfo field)
        {
            var how = (MarshalAsAttribute)Attribute.GetCustomAttribute(field, typeof(MarshalAsAttribute));
            if (how != null && how.Value == UnmanagedType.ByValArray)
            {
                return (uint)(how.SizeConst * Marshal.SizeOf(field.FieldType.GetElementType()));
            }
            return how != null && how.Value == UnmanagedType.I1 ? 1u : (uint)Marshal.SizeOf(field.FieldType);
        }

        // All members of all structs above. Unity: keep the fields of this assembly from being stripped (link.xml).
        public static exl2_layout[] Layouts(Texts texts)
        {
            var rows = new List<exl2_layout>();
            foreach (Type type in structs)
            {
                IntPtr name = texts.Add(type.Name);
                foreach (FieldInfo field in type.GetFields())
                {
                    rows.Add(new exl2_layout { type = name, member = texts.Add(field.Name),
                                               offset = (uint)(long)Marshal.OffsetOf(type, field.Name),
                                               bytes = Bytes(field) });
                }
            }
            return rows.ToArray();
        }
    }
}
