/* archs.c: `exl2 archs`: lists the architectures that the engine computes, and those that it rejects.
   takes: nothing.
   gives: cli_archs. */
#include "../common/json_out.h"
#include "cli.h"
#include "exl2.h"

#include <stdio.h>

static void print_json(void)
{
    json_out j = { .file = stdout };
    exl2_arch_info a;
    bool rejected = false;
    json_out_object(&j, NULL);
    json_out_array(&j, "supported");
    for (uint32_t i = 0; exl2_arch(i, &a); i++) {
        if (a.reason && !rejected) {
            json_out_end(&j);
            json_out_array(&j, "rejected");
            rejected = true;
        }
        json_out_object(&j, NULL);
        json_out_string(&j, "arch", a.name);
        if (a.reason) {
            json_out_string(&j, "reason", a.reason);
        } else {
            json_out_string(&j, "family", a.family);
            json_out_string(&j, "differs", a.differs);
            json_out_bool(&j, "golden", a.golden);
        }
        json_out_end(&j);
    }
    json_out_end(&j);
    json_out_end(&j);
}

/* Two Markdown tables, which exl2_impl/docs/families.md holds as they are. */
static void print_text(void)
{
    exl2_arch_info a;
    bool rejected = false;
    puts("| architecture | family | differs from Llama | golden |\n|---|---|---|---|");
    for (uint32_t i = 0; exl2_arch(i, &a); i++) {
        if (a.reason && !rejected) {
            puts("\n| rejected | because |\n|---|---|");
            rejected = true;
        }
        if (a.reason) {
            printf("| `%s` | %s |\n", a.name, a.reason);
        } else {
            printf("| `%s` | %s | %s | %s |\n", a.name, a.family, a.differs[0] ? a.differs : "-",
                   a.golden ? "yes" : "no");
        }
    }
}

int cli_archs(int argc, char **argv)
{
    bool json = false;
    const arg flags[] = { { "--json", ARG_BOOL, &json, NULL, "prints JSON" } };
    const args_desc d = { "exl2 archs",
                          "Lists the architectures: how each differs from Llama, whether the tests compare one with "
                          "transformers, and which are rejected.",
                          NULL, 0, 0, flags, ARGS_COUNT(flags) };
    args_result parsed = args_parse(&d, argc, argv);
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    if (json) {
        print_json();
    } else {
        print_text();
    }
    return 0;
}
