/* exl2_godot.c: a node for Godot 4.2 and newer (GDExtension, in C): Exl2Speaker, a person that a model speaks for.
   takes: gdextension_interface.h of Godot; the library exl2, or -DEXL2_IMPLEMENTATION.
   gives: exl2_godot_init, the entry symbol of exl2.gdextension.
   owns:  one engine with one model, which all speakers share, until Godot ends the extension.

   Everything happens on the thread that calls step, signals too: their handlers may touch the scene, speak again, or
   free the node. A speaker keeps its conversation, and sends all of it with each say; the engine finds what its session
   holds already. */
#include "exl2.h"
#include "gdextension_interface.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIANT_BYTES 40             /* of a Godot with double precision; 24 elsewhere */
#define EMIT_SIGNAL_HASH 4047867050u /* of Object.emit_signal in extension_api.json */
#define ARGS_MAX 2

typedef struct name_of_godot { /* a String or a StringName: a pointer */
    void *opaque;
} name_of_godot;

typedef struct variant {
    _Alignas(8) unsigned char opaque[VARIANT_BYTES];
} variant;

typedef struct text { /* grows; zeroed: empty */
    char *data;       /* [bytes] and a NUL; NULL if empty */
    size_t bytes;
} text;

typedef struct speaker {
    GDExtensionObjectPtr object;
    uintptr_t number; /* `user` of its jobs: a speaker may be freed while its events wait */
    exl2_session session;
    exl2_job job;
    bool speaks;
    exl2_message *said; /* [count] the conversation; texts are owned */
    size_t count;
    text reply;         /* of the job that runs */
    char error[512];    /* of the last call */
    struct speaker *next;
} speaker;

static struct {
    GDExtensionClassLibraryPtr library;
    GDExtensionInterfaceStringNameNewWithLatin1Chars new_name;
    GDExtensionInterfaceStringNewWithUtf8CharsAndLen new_string;
    GDExtensionInterfaceStringToUtf8Chars string_bytes;
    GDExtensionInterfaceVariantDestroy destroy;
    GDExtensionInterfaceVariantGetType type_of;
    GDExtensionInterfaceClassdbConstructObject construct;
    GDExtensionInterfaceObjectSetInstance set_instance;
    GDExtensionInterfaceObjectMethodBindCall call;
    GDExtensionInterfaceClassdbGetMethodBind find_method;
    GDExtensionInterfaceClassdbRegisterExtensionClass2 add_class;
    GDExtensionInterfaceClassdbRegisterExtensionClassMethod add_method;
    GDExtensionInterfaceClassdbRegisterExtensionClassSignal add_signal;
    GDExtensionInterfaceClassdbUnregisterExtensionClass remove_class;
    GDExtensionVariantFromTypeConstructorFunc from_string, from_name, from_bool, from_float;
    GDExtensionTypeFromVariantConstructorFunc to_string, to_int;
    GDExtensionPtrDestructor free_string, free_name;
    GDExtensionMethodBindPtr emit_signal;
} godot;

static struct {
    exl2_engine *engine;
    exl2_model model;
    char *path;
    float progress;      /* of loading; 1: ready */
    char error[512];     /* why the model did not load */
    uintptr_t numbers;
    speaker *speakers;
} world;

/* ---- texts ---- */

static name_of_godot name_of(const char *latin1)
{
    name_of_godot out = { NULL };
    godot.new_name(&out, latin1, false);
    return out;
}

static name_of_godot string_of(const char *utf8, size_t bytes)
{
    name_of_godot out = { NULL };
    godot.new_string(&out, utf8, (GDExtensionInt)bytes);
    return out;
}

/* The caller frees it. NULL: no memory. */
static char *copy_of(const char *bytes, size_t count)
{
    char *out = malloc(count + 1);
    if (out) {
        memcpy(out, bytes, count);
        out[count] = 0;
    }
    return out;
}

static char *utf8_of(GDExtensionConstStringPtr string)
{
    GDExtensionInt bytes = godot.string_bytes(string, NULL, 0);
    char *out = malloc((size_t)bytes + 1);
    if (out) {
        godot.string_bytes(string, out, bytes);
        out[bytes] = 0;
    }
    return out;
}

static bool text_add(text *t, const char *bytes, size_t count)
{
    char *data = realloc(t->data, t->bytes + count + 1);
    if (!data) {
        return false;
    }
    memcpy(data + t->bytes, bytes, count);
    t->data = data;
    t->bytes += count;
    data[t->bytes] = 0;
    return true;
}

/* ---- signals ---- */

static void emit(const speaker *s, const char *signal, const char *utf8, size_t bytes)
{
    variant args[2], nothing;
    GDExtensionCallError error;
    name_of_godot name = name_of(signal), string = string_of(utf8, bytes);
    godot.from_name(&args[0], &name);
    godot.from_string(&args[1], &string);
    const GDExtensionConstVariantPtr list[2] = { &args[0], &args[1] };
    godot.call(godot.emit_signal, s->object, list, 2, &nothing, &error);
    godot.destroy(&nothing);
    godot.destroy(&args[0]);
    godot.destroy(&args[1]);
    godot.free_name(&name);
    godot.free_string(&string);
}

/* ---- the engine ---- */

static void fail(speaker *s, const char *why)
{
    snprintf(s->error, sizeof s->error, "%s", why);
}

static void fail_by_engine(speaker *s)
{
    exl2_error error = { EXL2_OK, 0, "" };
    exl2_last_error(world.engine, &error);
    fail(s, error.text);
}

static speaker *find(const void *user)
{
    speaker *s = world.speakers;
    while (s && s->number != (uintptr_t)user) {
        s = s->next;
    }
    return s;
}

/* Takes the text, also if it fails. */
static bool add_message(speaker *s, const char *role, char *utf8)
{
    exl2_message *more = utf8 ? realloc(s->said, (s->count + 1) * sizeof *more) : NULL;
    if (!more) {
        free(utf8);
        fail(s, "there is no memory left");
        return false;
    }
    s->said = more;
    s->said[s->count++] = (exl2_message){ .role = role, .text = utf8 };
    return true;
}

static void hear_load(const exl2_event *e)
{
    world.progress = e->result == EXL2_PENDING && e->progress >= 1 ? 0.99f : e->progress;
    if (e->result < 0) {
        snprintf(world.error, sizeof world.error, "%s", e->error ? e->error : "the model did not load");
        exl2_model_close(world.engine, world.model);
        world.model = (exl2_model){ 0 };
        free(world.path);
        world.path = NULL;
    }
}

/* What was heard of a reply stays in the conversation. */
static void hear_done(speaker *s, const exl2_event *e)
{
    static const char *const reasons[] = { "", "eos", "string", "token", "length", "grammar", "callback", "cancelled",
                                           "error", "loop" };
    char reason[512];
    snprintf(reason, sizeof reason, "%s", e->stop == EXL2_STOP_ERROR && e->error ? e->error : reasons[e->stop]);
    s->speaks = false;
    if (s->reply.bytes) {
        add_message(s, "assistant", s->reply.data);
        s->reply = (text){ NULL, 0 };
    }
    emit(s, "done", reason, strlen(reason)); /* last: the handler may free the node */
}

static void hear_text(speaker *s, const exl2_event *e)
{
    char *piece = copy_of(e->text, e->bytes);
    if (!piece || !text_add(&s->reply, e->text, e->bytes)) {
        free(piece);
        fail(s, "there is no memory left");
        exl2_job_cancel(world.engine, s->job);
        return;
    }
    emit(s, "text", piece, e->bytes);
    free(piece);
}

/* ---- methods: they set s->error, and give "" or that text where they return a String ---- */

typedef struct value {
    int64_t number;
    double real;
    char *utf8; /* of an argument */
} value;

static void do_load(speaker *s, value *args, value *out)
{
    exl2_error error = { EXL2_OK, 0, "" };
    (void)out;
    if (world.path && strcmp(world.path, args[0].utf8) != 0) {
        fail(s, "all speakers share one model, and another one is loaded");
        return;
    }
    if (world.path) {
        return;
    }
    if (!world.engine && exl2_open(&(exl2_engine_desc){ .open_error = &error }, &world.engine) < 0) {
        fail(s, error.text);
        return;
    }
    exl2_model_desc d = { .path = args[0].utf8, .context_max = (uint32_t)args[1].number };
    world.progress = 0;
    world.error[0] = 0;
    if (exl2_model_open(world.engine, &d, &world.model) < 0) {
        fail_by_engine(s);
        return;
    }
    world.path = args[0].utf8;
    args[0].utf8 = NULL;
}

static void do_loaded(speaker *s, value *args, value *out)
{
    (void)args;
    out->real = world.model.id ? (double)world.progress : 0;
    fail(s, world.error);
}

static void do_persona(speaker *s, value *args, value *out)
{
    (void)out;
    if (s->count) {
        fail(s, "the persona comes before the first say");
        return;
    }
    add_message(s, "system", args[0].utf8);
    args[0].utf8 = NULL;
}

static void do_say(speaker *s, value *args, value *out)
{
    (void)out;
    if (s->speaks || !world.model.id || exl2_model_state(world.engine, world.model) != EXL2_OK) {
        fail(s, s->speaks ? "it speaks already" : world.error[0] ? world.error : "the model is not loaded yet");
        return;
    }
    if (!s->session.id && exl2_session_open(world.engine, world.model, &s->session) < 0) {
        fail_by_engine(s);
        return;
    }
    bool kept = add_message(s, "user", args[0].utf8);
    args[0].utf8 = NULL;
    if (!kept) {
        return;
    }
    free(s->reply.data);
    s->reply = (text){ NULL, 0 };
    exl2_job_desc d = { .session = s->session, .user = (void *)s->number,
                        .prompt = { .messages = s->said, .message_count = s->count },
                        .max_tokens = args[1].number > 0 ? (uint32_t)args[1].number : 0 };
    if (exl2_job_start(world.engine, &d, &s->job) < 0) {
        fail_by_engine(s);
        free((void *)s->said[--s->count].text);
        return;
    }
    s->speaks = true;
}

static void do_stop(speaker *s, value *args, value *out)
{
    (void)args;
    (void)out;
    if (s->speaks) {
        exl2_job_cancel(world.engine, s->job);
    }
}

/* Works for all speakers. Events are taken here, not in callbacks, so handlers may call anything. */
static void do_step(speaker *s, value *args, value *out)
{
    exl2_event e;
    (void)s; /* a handler may free it */
    if (!world.engine) {
        return;
    }
    exl2_step_desc d = { .cpu_us = (uint32_t)args[0].number, .gpu_us = (uint32_t)args[1].number };
    out->number = exl2_step(world.engine, &d) != EXL2_IDLE;
    while (world.engine && exl2_next_event(world.engine, &e)) {
        speaker *of = e.kind == EXL2_EVENT_LOAD ? NULL : find(e.user);
        if (e.kind == EXL2_EVENT_LOAD) {
            hear_load(&e);
        } else if (of && e.kind == EXL2_EVENT_TEXT) {
            hear_text(of, &e);
        } else if (of && e.kind == EXL2_EVENT_DONE) {
            hear_done(of, &e);
        }
    }
}

static const struct method {
    const char *name;
    void (*run)(speaker *s, value *args, value *out);
    GDExtensionVariantType result; /* STRING: the error, "" for none */
    uint32_t count;
    struct { const char *name; GDExtensionVariantType type; } args[ARGS_MAX];
} methods[] = {
    { "load", do_load, GDEXTENSION_VARIANT_TYPE_STRING, 2,
      { { "path", GDEXTENSION_VARIANT_TYPE_STRING }, { "context", GDEXTENSION_VARIANT_TYPE_INT } } },
    { "loaded", do_loaded, GDEXTENSION_VARIANT_TYPE_FLOAT, 0, { { NULL, GDEXTENSION_VARIANT_TYPE_NIL } } },
    { "persona", do_persona, GDEXTENSION_VARIANT_TYPE_STRING, 1, { { "system", GDEXTENSION_VARIANT_TYPE_STRING } } },
    { "say", do_say, GDEXTENSION_VARIANT_TYPE_STRING, 2,
      { { "words", GDEXTENSION_VARIANT_TYPE_STRING }, { "max_tokens", GDEXTENSION_VARIANT_TYPE_INT } } },
    { "stop", do_stop, GDEXTENSION_VARIANT_TYPE_STRING, 0, { { NULL, GDEXTENSION_VARIANT_TYPE_NIL } } },
    { "step", do_step, GDEXTENSION_VARIANT_TYPE_BOOL, 2,
      { { "cpu_us", GDEXTENSION_VARIANT_TYPE_INT }, { "gpu_us", GDEXTENSION_VARIANT_TYPE_INT } } },
    { "last_error", NULL, GDEXTENSION_VARIANT_TYPE_STRING, 0, { { NULL, GDEXTENSION_VARIANT_TYPE_NIL } } },
};

/* ---- calls from Godot ---- */

/* Runs the method; *string is its String, if it returns one. */
static void run(const struct method *m, speaker *s, value *args, value *out, name_of_godot *string)
{
    bool missing = false;
    for (uint32_t i = 0; i < m->count; i++) {
        missing = missing || (m->args[i].type == GDEXTENSION_VARIANT_TYPE_STRING && !args[i].utf8);
    }
    if (missing) {
        fail(s, "there is no memory left");
    } else if (m->run && m->run != do_step) {
        s->error[0] = 0;
        m->run(s, args, out);
    } else if (m->run) {
        m->run(s, args, out);
    }
    if (m->result == GDEXTENSION_VARIANT_TYPE_STRING) {
        *string = string_of(s->error, strlen(s->error));
    }
    for (uint32_t i = 0; i < m->count; i++) {
        free(args[i].utf8);
    }
}

static void call_typed(void *user, GDExtensionClassInstancePtr self, const GDExtensionConstTypePtr *given,
                       GDExtensionTypePtr result)
{
    const struct method *m = user;
    value args[ARGS_MAX] = { { 0 } }, out = { 0 };
    name_of_godot string = { NULL };
    for (uint32_t i = 0; i < m->count; i++) {
        if (m->args[i].type == GDEXTENSION_VARIANT_TYPE_STRING) {
            args[i].utf8 = utf8_of(given[i]);
        } else {
            args[i].number = *(const int64_t *)given[i];
        }
    }
    run(m, self, args, &out, &string);
    switch ((int)m->result) {
    case GDEXTENSION_VARIANT_TYPE_STRING: /* the place holds a String already */
        godot.free_string(result);
        *(name_of_godot *)result = string;
        break;
    case GDEXTENSION_VARIANT_TYPE_BOOL: *(GDExtensionBool *)result = out.number != 0; break;
    default: *(double *)result = out.real; break;
    }
}

static void call_variants(void *user, GDExtensionClassInstancePtr self, const GDExtensionConstVariantPtr *given,
                          GDExtensionInt count, GDExtensionVariantPtr result, GDExtensionCallError *error)
{
    const struct method *m = user;
    value args[ARGS_MAX] = { { 0 } }, out = { 0 };
    name_of_godot string = { NULL };
    if (count != m->count) {
        error->error = count < m->count ? GDEXTENSION_CALL_ERROR_TOO_FEW_ARGUMENTS
                                        : GDEXTENSION_CALL_ERROR_TOO_MANY_ARGUMENTS;
        error->expected = (int32_t)m->count;
        return;
    }
    for (uint32_t i = 0; i < m->count; i++) {
        if (godot.type_of(given[i]) != m->args[i].type) {
            error->error = GDEXTENSION_CALL_ERROR_INVALID_ARGUMENT;
            error->argument = (int32_t)i;
            error->expected = (int32_t)m->args[i].type;
            return;
        }
    }
    for (uint32_t i = 0; i < m->count; i++) {
        if (m->args[i].type == GDEXTENSION_VARIANT_TYPE_STRING) {
            name_of_godot one = { NULL };
            godot.to_string(&one, (GDExtensionVariantPtr)(uintptr_t)given[i]);
            args[i].utf8 = utf8_of(&one);
            godot.free_string(&one);
        } else {
            godot.to_int(&args[i].number, (GDExtensionVariantPtr)(uintptr_t)given[i]);
        }
    }
    run(m, self, args, &out, &string);
    GDExtensionBool flag = out.number != 0;
    switch ((int)m->result) {
    case GDEXTENSION_VARIANT_TYPE_STRING:
        godot.from_string(result, &string);
        godot.free_string(&string);
        break;
    case GDEXTENSION_VARIANT_TYPE_BOOL: godot.from_bool(result, &flag); break;
    default: godot.from_float(result, &out.real); break;
    }
}

/* ---- the class ---- */

static GDExtensionObjectPtr make_speaker(void *user)
{
    (void)user;
    name_of_godot node = name_of("Node"), own = name_of("Exl2Speaker");
    speaker *s = calloc(1, sizeof *s);
    GDExtensionObjectPtr object = s ? godot.construct(&node) : NULL;
    if (object) {
        s->object = object;
        s->number = ++world.numbers;
        s->next = world.speakers;
        world.speakers = s;
        godot.set_instance(object, &own, s);
    } else {
        free(s);
    }
    godot.free_name(&node);
    godot.free_name(&own);
    return object;
}

static void free_speaker(void *user, GDExtensionClassInstancePtr self)
{
    speaker *s = self, **at = &world.speakers;
    (void)user;
    while (*at != s) {
        at = &(*at)->next;
    }
    *at = s->next;
    if (s->speaks) {
        exl2_job_cancel(world.engine, s->job);
    }
    if (s->session.id) {
        exl2_session_close(world.engine, s->session);
    }
    for (size_t i = 0; i < s->count; i++) {
        free((void *)(uintptr_t)s->said[i].text);
    }
    free(s->said);
    free(s->reply.data);
    free(s);
}

static GDExtensionPropertyInfo property(GDExtensionVariantType type, name_of_godot *name, name_of_godot empty[2])
{
    return (GDExtensionPropertyInfo){ .type = type, .name = name, .class_name = &empty[0], .hint_string = &empty[1],
                                      .usage = 6 /* PROPERTY_USAGE_DEFAULT */ };
}

static void add_method(name_of_godot *own, const struct method *m, name_of_godot empty[2])
{
    GDExtensionClassMethodArgumentMetadata metadata[ARGS_MAX] = { GDEXTENSION_METHOD_ARGUMENT_METADATA_NONE };
    GDExtensionPropertyInfo args[ARGS_MAX], result = property(m->result, &empty[0], empty);
    name_of_godot name = name_of(m->name), names[ARGS_MAX];
    for (uint32_t i = 0; i < m->count; i++) {
        names[i] = name_of(m->args[i].name);
        args[i] = property(m->args[i].type, &names[i], empty);
    }
    godot.add_method(godot.library, own, &(GDExtensionClassMethodInfo){
        .name = &name, .method_userdata = (void *)(uintptr_t)m, .call_func = call_variants, .ptrcall_func = call_typed,
        .method_flags = GDEXTENSION_METHOD_FLAGS_DEFAULT, .has_return_value = true, .return_value_info = &result,
        .argument_count = m->count, .arguments_info = args, .arguments_metadata = metadata });
    for (uint32_t i = 0; i < m->count; i++) {
        godot.free_name(&names[i]);
    }
    godot.free_name(&name);
}

static void begin(void *user, GDExtensionInitializationLevel level)
{
    static const char *const signals[2][2] = { { "text", "piece" }, { "done", "reason" } };
    (void)user;
    if (level != GDEXTENSION_INITIALIZATION_SCENE) {
        return;
    }
    name_of_godot own = name_of("Exl2Speaker"), node = name_of("Node"), object = name_of("Object");
    name_of_godot emitter = name_of("emit_signal"), empty[2] = { name_of(""), string_of("", 0) };
    godot.emit_signal = godot.find_method(&object, &emitter, EMIT_SIGNAL_HASH);
    godot.add_class(godot.library, &own, &node, &(GDExtensionClassCreationInfo2){
        .is_exposed = true, .create_instance_func = make_speaker, .free_instance_func = free_speaker });
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        add_method(&own, &methods[i], empty);
    }
    for (size_t i = 0; i < 2; i++) {
        name_of_godot signal = name_of(signals[i][0]), arg = name_of(signals[i][1]);
        GDExtensionPropertyInfo info = property(GDEXTENSION_VARIANT_TYPE_STRING, &arg, empty);
        godot.add_signal(godot.library, &own, &signal, &info, 1);
        godot.free_name(&signal);
        godot.free_name(&arg);
    }
    name_of_godot *const all[] = { &own, &node, &object, &emitter, &empty[0] };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        godot.free_name(all[i]);
    }
    godot.free_string(&empty[1]);
}

static void end(void *user, GDExtensionInitializationLevel level)
{
    (void)user;
    if (level == GDEXTENSION_INITIALIZATION_SCENE) {
        name_of_godot own = name_of("Exl2Speaker");
        godot.remove_class(godot.library, &own);
        godot.free_name(&own);
        exl2_close(world.engine);
        free(world.path);
        memset(&world, 0, sizeof world);
    }
}

#ifdef _WIN32
__declspec(dllexport)
#elif defined(__GNUC__)
__attribute__((visibility("default")))
#endif
GDExtensionBool exl2_godot_init(GDExtensionInterfaceGetProcAddress get, GDExtensionClassLibraryPtr library,
                                GDExtensionInitialization *out)
{
    GDExtensionInterfaceGetVariantFromTypeConstructor from;
    GDExtensionInterfaceGetVariantToTypeConstructor to;
    GDExtensionInterfaceVariantGetPtrDestructor destructor;
    const struct { const char *name; void *place; } functions[] = {
        { "string_name_new_with_latin1_chars", &godot.new_name },
        { "string_new_with_utf8_chars_and_len", &godot.new_string },
        { "string_to_utf8_chars", &godot.string_bytes },
        { "variant_destroy", &godot.destroy },
        { "variant_get_type", &godot.type_of },
        { "classdb_construct_object", &godot.construct },
        { "object_set_instance", &godot.set_instance },
        { "object_method_bind_call", &godot.call },
        { "classdb_get_method_bind", &godot.find_method },
        { "classdb_register_extension_class2", &godot.add_class },
        { "classdb_register_extension_class_method", &godot.add_method },
        { "classdb_register_extension_class_signal", &godot.add_signal },
        { "classdb_unregister_extension_class", &godot.remove_class },
        { "get_variant_from_type_constructor", &from },
        { "get_variant_to_type_constructor", &to },
        { "variant_get_ptr_destructor", &destructor },
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        GDExtensionInterfaceFunctionPtr function = get(functions[i].name);
        if (!function) {
            return false; /* older than Godot 4.2 */
        }
        memcpy(functions[i].place, &function, sizeof function);
    }
    godot.library = library;
    godot.from_string = from(GDEXTENSION_VARIANT_TYPE_STRING);
    godot.from_name = from(GDEXTENSION_VARIANT_TYPE_STRING_NAME);
    godot.from_bool = from(GDEXTENSION_VARIANT_TYPE_BOOL);
    godot.from_float = from(GDEXTENSION_VARIANT_TYPE_FLOAT);
    godot.to_string = to(GDEXTENSION_VARIANT_TYPE_STRING);
    godot.to_int = to(GDEXTENSION_VARIANT_TYPE_INT);
    godot.free_string = destructor(GDEXTENSION_VARIANT_TYPE_STRING);
    godot.free_name = destructor(GDEXTENSION_VARIANT_TYPE_STRING_NAME);
    *out = (GDExtensionInitialization){ .minimum_initialization_level = GDEXTENSION_INITIALIZATION_SCENE,
                                        .initialize = begin, .deinitialize = end };
    return true;
}
