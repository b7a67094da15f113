/* kernel_folder.h: an exl2_kernel_cache in a folder. The file of an entry is named by its key.
   takes: a folder, or the user's cache folder.
   gives: kernel_folder_open, kernel_folder_hook.
   owns:  nothing; the files stay, except entries of older versions. */
#ifndef DEMO_KERNEL_FOLDER_H
#define DEMO_KERNEL_FOLDER_H

#include "exl2.h"

typedef struct kernel_folder { /* zeroed: no cache */
    char path[1024];           /* "": no cache */
    uint32_t stored;           /* entries and bytes stored since it was opened */
    uint64_t stored_bytes;
    char error[256];           /* why the first failed entry could not be written, else "" */
} kernel_folder;

/* path NULL: $XDG_CACHE_HOME/exl2, else $HOME/.cache/exl2; on Windows %LOCALAPPDATA%\exl2. If none of these
   variables is set there is no cache. The folder is made when the first entry is stored. false: path too long. */
bool kernel_folder_open(kernel_folder *f, const char *path);

/* *f must not move while the hook is used. An entry is written under a temporary name and then renamed, so that no
   reader sees half of it; an entry that cannot be written is not cached. Storing an entry removes those that older
   versions left: the same module and target, another key, written more than 30 days ago. Other files in the folder are
   not touched. */
exl2_kernel_cache kernel_folder_hook(kernel_folder *f);

#endif
