/* dump.c: `exl2 dump`: writes a matrix of EXL3 as it is decoded.
   takes: a model folder, a matrix's name, the path of a new file.
   gives: cli_dump. */
#include "../common/json_out.h"
#include "cli.h"
#include "exl2.h"

#include <stdio.h>

int cli_dump(int argc, char **argv)
{
    exl2_error error = { 0 };
    exl2_dump_info info;
    exl2_dump_desc d = { .error = &error };
    bool json = false;
    const arg positional[] = {
        { "MODEL", ARG_TEXT, &d.model_dir, NULL, "model folder" },
        { "MATRIX", ARG_TEXT, &d.matrix, NULL, "its name in the files, such as model.layers.0.mlp.down_proj" },
        { "FILE", ARG_TEXT, &d.out_path, NULL, "file to make" },
    };
    const arg flags[] = {
        { "--json", ARG_BOOL, &json, NULL, "prints JSON" },
    };
    const args_desc args = { "exl2 dump",
                             "Writes a matrix of EXL3 as halves [in, out], little-endian, in the rotated basis: before "
                             "the Hadamard matrices, suh and svh. So its bits can be compared with those of other "
                             "decoders.",
                             positional, ARGS_COUNT(positional), ARGS_COUNT(positional), flags, ARGS_COUNT(flags) };
    args_result parsed = args_parse(&args, argc, argv);
    if (parsed != ARGS_OK) {
        return cli_exit(parsed);
    }
    exl2_result result = exl2_dump(&d, &info);
    if (result < 0) {
        fprintf(stderr, "%s\n", error.text);
        return result == EXL2_ERR_ARG ? CLI_EXIT_USAGE : 1;
    }
    if (json) {
        json_out j = { .file = stdout };
        json_out_object(&j, NULL);
        json_out_uint(&j, "in", info.in);
        json_out_uint(&j, "out", info.out);
        json_out_number(&j, "bits", (double)info.bits);
        json_out_string(&j, "codebook", info.codebook);
        json_out_end(&j);
    } else {
        printf("%s: %u x %u halves of %g bits, %s\n", d.matrix, info.in, info.out, (double)info.bits, info.codebook);
    }
    return 0;
}
