/* page.h: the files of the page, which the program contains.
   takes: the path of a request.
   gives: page_find, PAGE_POLICY.
   owns:  nothing; the files are constants. */
#ifndef DEMO_PAGE_H
#define DEMO_PAGE_H

#include <stddef.h>

/* The header Content-Security-Policy of every file: nothing from elsewhere, nothing inline. */
#define PAGE_POLICY                                                                                                    \
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for "     \
    "'script'"

typedef struct page_file {
    const char *path; /* as in a request: "/", "/page.css", "/page.js", "/favicon.ico", ... */
    const char *type; /* for Content-Type */
    const char *data;
    size_t bytes;
} page_file;

/* The file that a path without a query names; NULL: none. All of them are given without a key. */
const page_file *page_find(const char *path);

#endif
