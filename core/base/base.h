/* The base room: status, memory, hashing, interning, logging, environment. Depends on libc only. */
#ifndef TT_BASE_H
#define TT_BASE_H

#include "base/env.h"
#include "base/hash.h"
#include "base/intern.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"

#endif
