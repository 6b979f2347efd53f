/* Tiers: what a section is launched as. A large program takes its time to compile, and nobody waits
 * for one where small ones will do. So a section whose own program is not ready is launched as its
 * pieces: runs of operators that cost little, each of them once but for those on lists; every other
 * operator alone. Equal layers of a model have equal pieces, and so have the iterations of a loop.
 * Once the section has come often, its own program is compiled in the background, and taken when it
 * is ready.
 *
 * Under deterministic algorithms every operator is launched alone: then neither the time nor what
 * is computed beside it decides how a sum is rounded. */
#ifndef TT_TIERS_H
#define TT_TIERS_H

#include "stream/section.h"

/* The launches of a section, a list, or NULL when nobody needs any result; `live` is filled in.
 * `any`: a program that returns more than is needed will do. On failure there are none. Under the
 * device's lock. */
tt_status tt_tiers_launch(tt_section *section, bool any, tt_cut why, const tt_policy *policy,
                          tt_launch **out);

/* The call is a part of a section now: if it will be launched alone, its program is compiled from
 * here on, while the section is still recorded. What fails fails again when it is launched. Under
 * the device's lock. */
void tt_tiers_foresee(tt_device *device, tt_call *call, const tt_policy *policy);

#endif
