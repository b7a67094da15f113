/* godot_host.c: as much of Godot as demo/bindings/godot needs: strings, variants, objects, their class, their signals.
   takes: gdextension_interface.h; the extension, linked; a model folder.
   gives: exit code 0 or 1. It is no proof that the node runs in Godot: it shows that the calls of the interface are
          made as the header describes them, and what the node does. */
#include "gdextension_interface.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

GDExtensionBool exl2_godot_init(GDExtensionInterfaceGetProcAddress get, GDExtensionClassLibraryPtr library,
                                GDExtensionInitialization *out);

static int failures, checks, strings; /* strings: that live */

static bool check(bool holds, const char *what)
{
    checks++;
    if (!holds) {
        failures++;
        printf("failed: %s\n", what);
    }
    return holds;
}

/* ---- values ---- */

typedef struct var {
    GDExtensionVariantType type;
    union {
        char *string;
        int64_t number;
        double real;
    } is;
} var;

static char *make(const char *text, size_t bytes)
{
    char *out = malloc(bytes + 1);
    memcpy(out, text, bytes);
    out[bytes] = 0;
    strings++;
    return out;
}

static void new_name(void *out, const char *text, GDExtensionBool fixed)
{
    check(!fixed, "a name is no constant");
    *(char **)out = make(text, strlen(text));
}

static void new_string(void *out, const char *text, GDExtensionInt bytes)
{
    *(char **)out = make(text, (size_t)bytes);
}

static GDExtensionInt string_bytes(const void *string, char *out, GDExtensionInt most)
{
    size_t bytes = strlen(*(char *const *)string);
    if (out) {
        memcpy(out, *(char *const *)string, bytes < (size_t)most ? bytes : (size_t)most);
    }
    return (GDExtensionInt)bytes;
}

static void free_string(void *string)
{
    strings -= *(char **)string != NULL;
    free(*(char **)string);
}

static void destroy(void *v)
{
    var *one = v;
    if (one->type == GDEXTENSION_VARIANT_TYPE_STRING || one->type == GDEXTENSION_VARIANT_TYPE_STRING_NAME) {
        free_string(&one->is.string);
    }
}

static GDExtensionVariantType type_of(const void *v)
{
    return ((const var *)v)->type;
}

static void from_string(void *out, void *string)
{
    *(var *)out = (var){ GDEXTENSION_VARIANT_TYPE_STRING, { make(*(char **)string, strlen(*(char **)string)) } };
}

static void from_name(void *out, void *string)
{
    from_string(out, string);
    ((var *)out)->type = GDEXTENSION_VARIANT_TYPE_STRING_NAME;
}

static void from_bool(void *out, void *flag)
{
    *(var *)out = (var){ GDEXTENSION_VARIANT_TYPE_BOOL, { .number = *(GDExtensionBool *)flag } };
}

static void from_float(void *out, void *real)
{
    *(var *)out = (var){ GDEXTENSION_VARIANT_TYPE_FLOAT, { .real = *(double *)real } };
}

static void to_string(void *out, void *v)
{
    *(char **)out = make(((var *)v)->is.string, strlen(((var *)v)->is.string));
}

static void to_int(void *out, void *v)
{
    *(int64_t *)out = ((var *)v)->is.number;
}

static GDExtensionVariantFromTypeConstructorFunc from(GDExtensionVariantType type)
{
    switch ((int)type) {
    case GDEXTENSION_VARIANT_TYPE_STRING: return from_string;
    case GDEXTENSION_VARIANT_TYPE_STRING_NAME: return from_name;
    case GDEXTENSION_VARIANT_TYPE_BOOL: return from_bool;
    case GDEXTENSION_VARIANT_TYPE_FLOAT: return from_float;
    default: return NULL;
    }
}

static GDExtensionTypeFromVariantConstructorFunc to(GDExtensionVariantType type)
{
    return type == GDEXTENSION_VARIANT_TYPE_STRING ? to_string : type == GDEXTENSION_VARIANT_TYPE_INT ? to_int : NULL;
}

static GDExtensionPtrDestructor destructor(GDExtensionVariantType type)
{
    (void)type;
    return free_string;
}

/* ---- objects and the class ---- */

typedef struct object {
    void *instance;
    char heard[4096], reason[600];
    int texts, dones;
    bool frees; /* the handler of `text` frees the node */
} object;

typedef struct method {
    char name[32];
    GDExtensionClassMethodInfo info;
    GDExtensionVariantType args[2], result;
} method;

static GDExtensionClassCreationInfo2 class_info;
static method methods[16];
static size_t method_count, signal_count;
static bool removed;

static void *construct(const void *name)
{
    check(strcmp(*(char *const *)name, "Node") == 0, "the base is Node");
    return calloc(1, sizeof(object));
}

static void set_instance(void *o, const void *name, void *instance)
{
    check(strcmp(*(char *const *)name, "Exl2Speaker") == 0, "the class of an instance");
    ((object *)o)->instance = instance;
}

static void *find_method(const void *class_name, const void *name, GDExtensionInt hash)
{
    check(strcmp(*(char *const *)class_name, "Object") == 0 && strcmp(*(char *const *)name, "emit_signal") == 0
              && hash == 4047867050, "the method is Object.emit_signal");
    return &class_info;
}

static void free_node(object *o)
{
    class_info.free_instance_func(class_info.class_userdata, o->instance);
    o->instance = NULL;
}

static void call(void *bind, void *self, const GDExtensionConstVariantPtr *args, GDExtensionInt count, void *result,
                 GDExtensionCallError *error)
{
    object *o = self;
    const var *signal = args[0], *text = args[1];
    check(bind == &class_info && count == 2 && signal->type == GDEXTENSION_VARIANT_TYPE_STRING_NAME
              && text->type == GDEXTENSION_VARIANT_TYPE_STRING, "a signal has its name and a text");
    if (strcmp(signal->is.string, "text") == 0) {
        strncat(o->heard, text->is.string, sizeof o->heard - strlen(o->heard) - 1);
        o->texts++;
    } else {
        snprintf(o->reason, sizeof o->reason, "%s", text->is.string);
        o->dones++;
    }
    *(var *)result = (var){ GDEXTENSION_VARIANT_TYPE_NIL, { NULL } };
    error->error = GDEXTENSION_CALL_OK;
    if (o->frees) {
        free_node(o);
    }
}

static void add_class(void *library, const void *name, const void *parent, const GDExtensionClassCreationInfo2 *info)
{
    check(library == &methods && strcmp(*(char *const *)name, "Exl2Speaker") == 0
              && strcmp(*(char *const *)parent, "Node") == 0, "the class is added");
    class_info = *info;
}

static void add_method(void *library, const void *name, const GDExtensionClassMethodInfo *info)
{
    method *m = &methods[method_count++];
    (void)library;
    (void)name;
    m->info = *info;
    m->result = info->return_value_info->type;
    snprintf(m->name, sizeof m->name, "%s", *(char **)info->name);
    for (uint32_t i = 0; i < info->argument_count; i++) {
        check(*(char **)info->arguments_info[i].name != NULL, "an argument has a name");
        m->args[i] = info->arguments_info[i].type;
    }
}

static void add_signal(void *library, const void *name, const void *signal, const GDExtensionPropertyInfo *args,
                       GDExtensionInt count)
{
    (void)library;
    (void)name;
    signal_count++;
    check(count == 1 && args->type == GDEXTENSION_VARIANT_TYPE_STRING && **(char *const *)signal, "a signal's text");
}

static void remove_class(void *library, const void *name)
{
    (void)library;
    removed = strcmp(*(char *const *)name, "Exl2Speaker") == 0;
}

static GDExtensionInterfaceFunctionPtr get(const char *name)
{
    static const struct { const char *name; void (*function)(void); } all[] = {
        { "string_name_new_with_latin1_chars", (void (*)(void))new_name },
        { "string_new_with_utf8_chars_and_len", (void (*)(void))new_string },
        { "string_to_utf8_chars", (void (*)(void))string_bytes },
        { "variant_destroy", (void (*)(void))destroy },
        { "variant_get_type", (void (*)(void))type_of },
        { "classdb_construct_object", (void (*)(void))construct },
        { "object_set_instance", (void (*)(void))set_instance },
        { "object_method_bind_call", (void (*)(void))call },
        { "classdb_get_method_bind", (void (*)(void))find_method },
        { "classdb_register_extension_class2", (void (*)(void))add_class },
        { "classdb_register_extension_class_method", (void (*)(void))add_method },
        { "classdb_register_extension_class_signal", (void (*)(void))add_signal },
        { "classdb_unregister_extension_class", (void (*)(void))remove_class },
        { "get_variant_from_type_constructor", (void (*)(void))from },
        { "get_variant_to_type_constructor", (void (*)(void))to },
        { "variant_get_ptr_destructor", (void (*)(void))destructor },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(all[i].name, name) == 0) {
            return (GDExtensionInterfaceFunctionPtr)all[i].function;
        }
    }
    return NULL;
}

/* ---- calls, as a script makes them ---- */

static const method *method_of(const char *name)
{
    for (size_t i = 0; i < method_count; i++) {
        if (strcmp(methods[i].name, name) == 0) {
            return &methods[i];
        }
    }
    printf("there is no method %s\n", name);
    exit(1);
}

static var script_call(object *o, const char *name, const char *text, int64_t a, int64_t b)
{
    const method *m = method_of(name);
    var args[2], result = { GDEXTENSION_VARIANT_TYPE_NIL, { NULL } };
    GDExtensionConstVariantPtr list[2] = { &args[0], &args[1] };
    GDExtensionCallError error = { GDEXTENSION_CALL_OK, 0, 0 };
    for (uint32_t i = 0; i < m->info.argument_count; i++) {
        bool string = m->args[i] == GDEXTENSION_VARIANT_TYPE_STRING;
        args[i].type = m->args[i];
        if (string) {
            args[i].is.string = make(text, strlen(text));
        } else {
            args[i].is.number = i == 0 ? a : b;
        }
    }
    m->info.call_func(m->info.method_userdata, o->instance, list, m->info.argument_count, &result, &error);
    check(error.error == GDEXTENSION_CALL_OK && result.type == m->result, name);
    for (uint32_t i = 0; i < m->info.argument_count; i++) {
        destroy(&args[i]);
    }
    return result;
}

/* A method that returns its error: does the text begin so? */
static bool gives(object *o, const char *name, const char *text, int64_t number, const char *wanted)
{
    var got = script_call(o, name, text, 0, number);
    bool good = *wanted ? strncmp(got.is.string, wanted, strlen(wanted)) == 0 : !*got.is.string;
    if (!good) {
        printf("%s: \"%s\"\n", name, got.is.string);
    }
    destroy(&got);
    return check(good, name);
}

static bool step(object *o)
{
    return script_call(o, "step", "", 2000, 0).is.number != 0;
}

static void finish(object *o)
{
    int dones = o->dones;
    for (int i = 0; i < 100000 && o->dones == dones; i++) {
        step(o);
    }
    check(o->dones == dones + 1, "a job ends");
}

static void speak(object *a, object *b)
{
    gives(a, "persona", "You are brief.", 0, "");
    gives(a, "say", "Who goes there?", 12, "");
    gives(b, "say", "Who goes there?", 12, "");
    gives(b, "say", "Again?", 12, "it speaks already");
    finish(a);
    for (int i = 0; i < 100000 && !b->dones; i++) {
        step(a);
    }
    check(a->texts && *a->heard && strcmp(a->reason, "length") == 0, "texts come, and how it ended");
    check(b->dones == 1 && *b->heard, "any speaker's step is everybody's");
    gives(a, "persona", "Late.", 0, "the persona comes before");
    gives(a, "say", "And then?", 100, "");
    int before = a->texts;
    for (int i = 0; i < 100000 && a->texts == before; i++) {
        step(a);
    }
    gives(a, "stop", "", 0, "");
    finish(a);
    check(strcmp(a->reason, "cancelled") == 0, "stop ends it");
    gives(a, "say", "Go on.", 4, "");
    finish(a);
    check(strcmp(a->reason, "length") == 0, "what was heard stays, and it goes on");
}

/* The same by pointers, as typed scripts call. */
static void typed(object *o)
{
    const method *m = method_of("say");
    char *text = make("Typed?", 6), *result = make("", 0);
    int64_t tokens = 3;
    const void *args[2] = { &text, &tokens };
    m->info.ptrcall_func(m->info.method_userdata, o->instance, args, &result);
    check(!*result, "say by pointers");
    free_string(&text);
    free_string(&result);
    finish(o);
    m = method_of("loaded");
    double progress = 0;
    m->info.ptrcall_func(m->info.method_userdata, o->instance, NULL, &progress);
    check(progress == 1, "loaded by pointers");
}

static void wrong_calls(object *o)
{
    const method *m = method_of("say");
    GDExtensionCallError error = { GDEXTENSION_CALL_OK, 0, 0 };
    var one = { GDEXTENSION_VARIANT_TYPE_INT, { .number = 1 } }, args[2] = { one, one };
    GDExtensionConstVariantPtr list[2] = { &args[0], &args[1] };
    var result = { GDEXTENSION_VARIANT_TYPE_NIL, { NULL } };
    m->info.call_func(m->info.method_userdata, o->instance, list, 2, &result, &error);
    check(error.error == GDEXTENSION_CALL_ERROR_INVALID_ARGUMENT && error.argument == 0, "a number is no text");
    m->info.call_func(m->info.method_userdata, o->instance, list, 1, &result, &error);
    check(error.error == GDEXTENSION_CALL_ERROR_TOO_FEW_ARGUMENTS && error.expected == 2, "too few");
}

int main(int argc, char **argv)
{
    GDExtensionInitialization about;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 2 || !check(exl2_godot_init(get, &methods, &about), "it begins")) {
        return 1;
    }
    about.initialize(about.userdata, GDEXTENSION_INITIALIZATION_SERVERS);
    about.initialize(about.userdata, GDEXTENSION_INITIALIZATION_SCENE);
    check(method_count == 7 && signal_count == 2, "seven methods, two signals");
    object *a = class_info.create_instance_func(NULL), *b = class_info.create_instance_func(NULL);
    object *c = class_info.create_instance_func(NULL);
    check(!step(a), "nothing to do before a model");
    gives(a, "say", "Hello?", 4, "the model is not loaded yet");
    gives(a, "load", "no/such/folder", 256, "");
    while (step(a)) {
    }
    check(script_call(a, "loaded", "", 0, 0).is.real == 0, "it did not load");
    gives(a, "last_error", "", 0, "no config.json in no/such/folder");
    gives(a, "load", argv[1], 256, "");
    gives(b, "load", argv[1], 256, "");
    gives(b, "load", "other", 256, "all speakers share one model");
    for (int i = 0; i < 100000 && script_call(a, "loaded", "", 0, 0).is.real < 1; i++) {
        step(a);
    }
    speak(a, b);
    typed(b);
    wrong_calls(a);
    gives(c, "say", "Hello?", 100, "");
    gives(b, "say", "Hello?", 20, "");
    c->frees = true;
    finish(b);
    check(!c->instance && c->texts == 1 && !c->dones, "a handler may free its node");
    gives(a, "say", "x", 50, "");
    step(a);
    free_node(a);
    free_node(b);
    about.deinitialize(about.userdata, GDEXTENSION_INITIALIZATION_SCENE);
    check(removed && strings == 0, "no string is left");
    free(a), free(b), free(c);
    printf("%d checks, %d failed\n", checks, failures);
    return failures > 0;
}
