/* stb.h: stb's reader and writer of pictures as static functions, without the warnings that stb gives.
   takes: STB_READS defined for stb_image, with its STBI_... options; STB_WRITES for stb_image_write. A file that needs
          both may include this twice, so there is no include guard.
   gives: the functions of those headers. */
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wcast-qual"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#endif
#ifdef STB_READS
#undef STB_READS
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
#endif
#ifdef STB_WRITES
#undef STB_WRITES
#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb/stb_image_write.h>
#endif
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#pragma GCC diagnostic ignored "-Wunused-function" /* gcc finds these at the end of the file */
#endif
