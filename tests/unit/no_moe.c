/* no_moe.c: a build with EXL2_NO_MOE rejects models with experts, names the switch, and reads other models. */
#define EXL2_NO_MOE
#include "../memory_files.h"

#include "private/model_config_read.h"

#define SIZES "'vocab_size':320,'hidden_size':128,'intermediate_size':96,'num_hidden_layers':2," \
              "'num_attention_heads':4,'rms_norm_eps':1e-05"

static exl2_result read_text(memory_files *m, const char *config)
{
    exl2__config k;
    memory_make(m);
    memory_add_text(m, "config.json", json_text(config));
    exl2_result result = exl2__config_read(&m->c, "models/x", &k);
    memory_free(m);
    return result;
}

int main(void)
{
    memory_files m;
    CHECK_INT(read_text(&m, "{'architectures':['LlamaForCausalLM']," SIZES "}"), EXL2_OK);
    for (size_t i = 0; i < EXL2__COUNT(exl2__archs); i++) {
        exl2__arch row;
        char text[512];
        exl2__arch_resolve(&exl2__archs[i], &row);
        if (row.traits[EXL2__TRAIT_ROUTING] != EXL2__ROUTING_NONE) {
            snprintf(text, sizeof text, "{'architectures':['%s']," SIZES ",'num_key_value_heads':4,"
                     "'num_experts':4,'num_experts_per_tok':2}",
                     row.name);
            CHECK_INT(read_text(&m, text), EXL2_ERR_UNSUPPORTED);
            check_error(&m.c, row.name, "EXL2_NO_MOE", text);
            snprintf(text, sizeof text, "{'architectures':['%s']}", row.name); /* whatever else the file says */
            CHECK_INT(read_text(&m, text), EXL2_ERR_UNSUPPORTED);
            check_error(&m.c, row.name, "EXL2_NO_MOE", text);
        }
    }
    return check_done();
}
