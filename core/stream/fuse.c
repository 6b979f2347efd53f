#include "stream/fuse.h"

#include "stream/parts.h"
#include "stream/tier.h"
#include "stream/tiers.h"

/* How often a group is kept together before its program is there, and how often the device
 * must be behind in a row when it comes; how much oftener it may be missed than met, fused. */
enum { TRIES = 4, LAGS = 4, MISSES = 4, MAX_LENGTH = 2048 };
#define PIECES                                                                                     \
  ((tt_cut_limits){.least = 2, .most = TT_FUSE_PIECES, .window = 8, .grams = 1, .bytes = INT64_MAX})
#define MAX_BYTES (INT64_C(1) << 28)
#define MAX_COMPILE_NS INT64_C(20000000000)

/* -- Deciding -- */

void tt_fuse_init(tt_fusing *fuse) { *fuse = (tt_fusing){.cutter.limits = PIECES}; }

/* The group that begins with the piece which just ended. */
static tt_group *find_group(tt_fusing *fuse) {
  uint64_t pair[] = {fuse->before, fuse->hash};
  uint64_t key = tt_hash_bytes(pair, sizeof pair, 0) | 1;
  tt_group *group = &fuse->groups[key % TT_FUSE_GROUPS];
  if (group->key != key) *group = (tt_group){.key = key};
  return group;
}

/* The plugin says what a program needs only once it is compiled. */
static bool fits(tt_program *program) {
  tt_program_memory needs = {0};
  return !tt_program_needs(program, &needs) || needs.temporaries <= MAX_BYTES;
}

/* Is the open group kept together? */
static bool begins(tt_fusing *fuse, const tt_policy *policy, bool behind) {
  tt_group *group = fuse->group;
  tt_want want = policy->known_only ? TT_WANT_KNOWN : TT_WANT_NOW;
  tt_tier tier = tt_tier_chosen(policy);
  if (tier == TT_TIER_OPERATORS || tier == TT_TIER_PIECES || group->apart) return false;
  if (group->skips) {
    group->skips--;
    return false;
  }
  fuse->trying = group->tries < TRIES && !policy->known_only;
  if (fuse->trying) return ++group->tries;
  if (!behind) group->lags = 0;
  else if (group->lags < LAGS) group->lags++;
  if (!group->program || group->lags < LAGS || !tt_program_poll(group->program, want)) return false;
  if (!group->fits) group->apart = !fits(group->program);
  return group->fits = !group->apart;
}

/* A piece has ended. */
static void note_piece(tt_fusing *fuse) {
  fuse->before = fuse->hash;
  fuse->hash = 0;
}

/* What ends a group: a new piece, whose program is still to be compiled; and one that is as the
 * last one was, since the two share a program. */
bool tt_fuse_pass(tt_fusing *fuse, const tt_section *section, int64_t bytes,
                  const tt_policy *policy, bool behind) {
  bool fresh = fuse->count == 0 && !section->at->live_sets;
  bool alone = fresh || fuse->hash == fuse->before;
  if (fuse->pieces++ == 0) {
    fuse->group = find_group(fuse);
    fuse->passing = !alone && begins(fuse, policy, behind);
  }
  bool last = tt_cutter_add(&fuse->cutter, fuse->hash, fuse->pieces, 0) != TT_CUT_NONE || alone ||
              fuse->count == TT_FUSE_PIECES || section->at->depth > MAX_LENGTH || bytes > MAX_BYTES;
  note_piece(fuse);
  if (last) fuse->pieces = 0;
  if (last || !fuse->passing) return false;
  fuse->ends[fuse->count++] = section->at;
  fuse->depth = section->at->depth;
  fuse->bytes = bytes;
  return true;
}

void tt_fuse_reset(tt_fusing *fuse, tt_cut why) {
  if (why != TT_CUT_CONTENT) {
    fuse->pieces = 0;
    note_piece(fuse);
  }
  fuse->count = fuse->depth = 0;
  fuse->bytes = 0;
}

/* -- Pieces -- */

/* Of a fused program: none, none as long as the pieces' own are not there, or it is to be made. */
typedef enum advice { NEVER, NOT_YET, NOW } advice;

/* A chunk that is taken apart: where its pieces end, and which nodes they are as chunks of their
 * own. */
typedef struct pieces {
  int count, ends[TT_FUSE_PIECES + 1];
  const tt_trace_node *nodes[TT_FUSE_PIECES + 1];
} pieces;

/* A program that returns more than is needed will do: before it was fused, the piece ended while
 * more of its results were held. */
static tt_status launch_piece(tt_parts *parts, pieces *p, int i, tt_cut why,
                              const tt_policy *policy, tt_launch **out) {
  tt_section piece;
  tt_section_init(&piece, parts->whole->device);
  tt_status status =
      tt_parts_cut(parts, i ? p->ends[i - 1] : 0, p->ends[i] - 1, TT_PARTS_WHOLE, &piece);
  p->nodes[i] = piece.at;
  if (!status)
    status = tt_tiers_launch(&piece, true, i + 1 < p->count ? TT_CUT_CONTENT : why, policy, out);
  tt_section_deinit(&piece);
  return status;
}

static bool has_program(const tt_trace_node *node, int64_t *took) {
  bool ready = false;
  for (const tt_live_set *v = node->live_sets; v; v = v->next) {
    if (v->program) *took += atomic_load(&v->program->compile_ns);
    ready |= tt_program_is_ready(v->program);
  }
  return ready;
}

/* A fused program is worth it where all pieces come again, not all are the same, and they were
 * compiled fast. */
static advice advise(const pieces *p) {
  bool differ = false, ready = true;
  int64_t took = 0;
  for (int i = 0; i < p->count; i++) {
    ready &= p->nodes[i]->met >= 2 && has_program(p->nodes[i], &took);
    differ |= p->nodes[i] != p->nodes[0];
  }
  if (!differ || took > MAX_COMPILE_NS) return NEVER;
  return ready ? NOW : NOT_YET;
}

static tt_status launch_pieces(const tt_fusing *fuse, const tt_section *whole, tt_cut why,
                               const tt_policy *policy, advice *about, tt_launch **out) {
  pieces p = {.count = fuse->count + 1};
  tt_parts parts;
  tt_launch **end = out;
  for (int i = 0; i < fuse->count; i++) p.ends[i] = fuse->ends[i]->depth;
  p.ends[fuse->count] = whole->at->depth;
  tt_status status = tt_parts_init(&parts, whole);
  if (!status) tt_parts_divide(&parts, p.ends, p.count, true);
  for (int i = 0; i < p.count && !status; i++) {
    status = launch_piece(&parts, &p, i, why, policy, end);
    while (*end) end = &(*end)->next;
  }
  if (!status) *about = advise(&p);
  tt_parts_deinit(&parts);
  if (!status) return TT_SUCCESS;
  tt_launch_destroy_list(*out);
  *out = NULL;
  return status;
}

/* -- Closing -- */

/* A fused program that cannot be made is none: the pieces have run. */
static void ask(tt_group *group, tt_section *whole, tt_cut why, tt_live_set *live_set) {
  tt_status status = tt_section_program(whole, why, TT_WANT_BACKGROUND, &live_set);
  if (!status) {
    group->program = live_set->program;
    return;
  }
  group->apart = true;
  tt_log(TT_LOG_COMPILE, "chunks stay apart: %s", tt_status_message(status));
  tt_status_release(status);
}

/* It is tried again, and more and more seldom. */
static void put_off(tt_group *group) {
  group->tries--;
  if (group->pause < UINT8_MAX / 2) group->pause = (uint8_t)(2 * group->pause + 1);
  group->skips = group->pause;
}

tt_status tt_fuse_close(tt_fusing *fuse, tt_section *section, tt_cut why, const tt_policy *policy,
                        tt_launch **out) {
  tt_group *group = fuse->group;
  advice about = NEVER;
  bool by_chance = why != TT_CUT_CONTENT && why != TT_CUT_STOP;
  *out = NULL;
  if (!tt_section_any_live(section)) return TT_SUCCESS;
  tt_live_set *live_set = tt_trace_find(section->at, section->live, false);
  if (live_set) group->program = live_set->program;
  bool asked = live_set && live_set->program;
  if (asked && tt_program_is_ready(live_set->program)) {
    tt_count_add(TT_COUNT_FUSED, fuse->count + 1);
    tt_count_add(TT_COUNT_TIER_CHUNKS, section->at->depth);
    if (group->misses) group->misses--;
    return tt_section_launch(section, live_set, why, policy, out);
  }
  TT_TRY(launch_pieces(fuse, section, why, policy, &about, out));
  if (!fuse->trying) group->apart = ++group->misses > MISSES;
  else if (about == NOT_YET) put_off(group);
  else if (about == NOW && !asked && !by_chance && !policy->known_only)
    ask(group, section, why, live_set);
  return TT_SUCCESS;
}
