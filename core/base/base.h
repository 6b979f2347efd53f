/* The base room: status, memory, hashing, interning, logging, the clock, environment, counters,
 * source lines, guards. Depends on libc only. */
#ifndef TT_BASE_H
#define TT_BASE_H

#include "base/board.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/env.h"
#include "base/growth.h"
#include "base/guard.h"
#include "base/hash.h"
#include "base/intern.h"
#include "base/interrupt.h"
#include "base/journal.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/site.h"
#include "base/status.h"

#endif
