/* What chunks are launched as (tiers.h), where that is not left to what is ready. Thread-safe. */
#ifndef TT_TIER_H
#define TT_TIER_H

#include "stream/policy.h"

typedef enum tt_tier {
  TT_TIER_AUTO,
  TT_TIER_OPERATORS,
  TT_TIER_PIECES,
  TT_TIER_KERNELS, /* pieces, which order kernels of the host's where they can */
  TT_TIER_CHUNKS
} tt_tier;

/* Under deterministic algorithms operators; else what the registry's FUSED_TIER says. */
tt_tier tt_tier_chosen(const tt_policy *policy);
/* For tests: another one than the registry's, from now on. */
void tt_tier_force(tt_tier tier);

#endif
