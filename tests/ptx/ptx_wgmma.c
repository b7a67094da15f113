#include "ptx_parts.h"
bool ptx_wgmma_decode(ptx_code *c) { (void)c; return false; }
