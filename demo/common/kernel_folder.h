/* kernel_folder.h: exl2_kernel_cache as a folder: an entry is a file of its key's name.
   takes: a folder, or the user's own place for caches.
   gives: kernel_folder_open, kernel_folder_hook.
   owns:  nothing; the files stay, except entries of older versions. */
#ifndef DEMO_KERNEL_FOLDER_H
#define DEMO_KERNEL_FOLDER_H

#include "exl2.h"

typedef struct kernel_folder { /* zeroed: no cache */
    char path[1024];           /* "": none */
    uint32_t stored;           /* entries, since it was opened; */
    uint64_t stored_bytes;
    char error[256];           /* why the first one could not be written, else "" */
} kernel_folder;

/* path NULL: $XDG_CACHE_HOME/exl2, else $HOME/.cache/exl2; on Windows %LOCALAPPDATA%\exl2; without one, no cache.
   Nothing is made before something is stored. false: the path is too long. */
bool kernel_folder_open(kernel_folder *f, const char *path);

/* *f must stay where it is as long as the hook is used. An entry is written under another name and then renamed, so
   that nobody reads half of one; what cannot be written is only not kept. Storing one removes those of the same module
   and target with another key that were written more than 30 days ago: older versions left them. Nothing else in the
   folder is touched. */
exl2_kernel_cache kernel_folder_hook(kernel_folder *f);

#endif
