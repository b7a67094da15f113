/* crt.c: what objects for MSVC need and mingw's libraries lack. */
struct tm;
int _localtime64_s(struct tm *out, const long long *at);
int localtime_s(struct tm *out, const long long *at);
void __cpuidex(int out[4], int leaf, int subleaf);

int localtime_s(struct tm *out, const long long *at)
{
    return _localtime64_s(out, at);
}

void __cpuidex(int out[4], int leaf, int subleaf)
{
    __asm__ volatile("cpuid" : "=a"(out[0]), "=b"(out[1]), "=c"(out[2]), "=d"(out[3]) : "a"(leaf), "c"(subleaf));
}
