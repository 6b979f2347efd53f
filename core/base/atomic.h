/* Atomic members of structs whose headers C++ includes, too: it sees them from outside only, and
 * leaves what is in them alone. */
#ifndef TT_ATOMIC_H
#define TT_ATOMIC_H

#ifdef __cplusplus
#define TT_ATOMIC(type) type
#else
#include <stdatomic.h>
#define TT_ATOMIC(type) _Atomic(type)
#endif

#endif
