/* stdio.h: streams */
#ifndef MSVC_STDIO_H
#define MSVC_STDIO_H

#include <stddef.h>

typedef struct _iobuf {
    void *_Placeholder;
} FILE;
#define SEEK_SET 0
#define SEEK_CUR 1
#define SEEK_END 2
size_t fread(void *out, size_t bytes, size_t count, FILE *file);
size_t fwrite(const void *from, size_t bytes, size_t count, FILE *file);
int fclose(FILE *file);
int fflush(FILE *file);
int _fileno(FILE *file);
int ferror(FILE *file);
int _fseeki64(FILE *file, __int64 offset, int origin);
void _lock_file(FILE *file);
void _unlock_file(FILE *file);
__int64 _ftelli64(FILE *file);
/* An error with /sdl, which projects of Visual Studio have. */
__declspec(deprecated) FILE *fopen(const char *path, const char *mode);
__declspec(deprecated) FILE *_wfopen(const wchar_t *path, const wchar_t *mode);
FILE *_wfsopen(const wchar_t *path, const wchar_t *mode, int share);
int _wrename(const wchar_t *from, const wchar_t *to);
int _wunlink(const wchar_t *path);

#endif
