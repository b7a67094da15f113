#include "ptx_parts.h"
bool ptx_matrix_decode(ptx_code *c) { (void)c; return false; }
