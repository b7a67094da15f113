/* share.h: what others may do with an open file */
#ifndef MSVC_SHARE_H
#define MSVC_SHARE_H

#define _SH_DENYWR 0x20
#define _SH_DENYNO 0x40

#endif
