/* page.h: the files of the page, which the program contains.
   takes: the path of a request.
   gives: page_find, PAGE_POLICY.
   owns:  nothing; the files are constants. */
#ifndef DEMO_PAGE_H
#define DEMO_PAGE_H

#include <stdbool.h>
#include <stddef.h>

/* The header Content-Security-Policy of every file: nothing from elsewhere, nothing inline but pictures of a chat. */
#define PAGE_POLICY                                                                                                    \
    "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "         \
    "require-trusted-types-for 'script'"

typedef struct page_file {
    const char *type; /* for Content-Type */
    const char *data;
    size_t bytes;
} page_file;

/* The file that a path without a query names: "/", "/page.css", "/page.js", "/favicon.ico" and so on. All of them are
   given without a key. false: there is none. */
bool page_find(const char *path, page_file *file);

#endif
