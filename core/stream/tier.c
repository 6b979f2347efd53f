#include "stream/tier.h"

#include "base/env.h"

#include <stdatomic.h>
#include <string.h>

static atomic_int forced = -1; /* a tt_tier; -1: the registry says it */

static tt_tier read_tier(void) {
  static const char *const names[] = {"auto", "operators", "pieces", "kernels", "chunks"};
  for (int i = TT_TIER_OPERATORS; i <= TT_TIER_CHUNKS; i++)
    if (strcmp(tt_env(TT_ENV_FUSED_TIER), names[i]) == 0) return (tt_tier)i;
  return TT_TIER_AUTO;
}

tt_tier tt_tier_chosen(const tt_policy *policy) {
  int tier = atomic_load_explicit(&forced, memory_order_relaxed);
  if (policy->deterministic) return TT_TIER_OPERATORS;
  if (tier < 0) tt_tier_force((tt_tier)(tier = (int)read_tier()));
  return (tt_tier)tier;
}

void tt_tier_force(tt_tier tier) { atomic_store(&forced, (int)tier); }
