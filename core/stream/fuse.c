#include "stream/fuse.h"

#include <string.h>

/* How often a group is kept together before its program is there, and how often the device
 * must be behind in a row when it comes; and how much oftener it may be missed than met, fused. */
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
  if (policy->deterministic || group->apart) return false;
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

/* A chunk that is taken apart. */
typedef struct parts {
  const tt_section *whole;
  tt_trace_node **path; /* [whole->at->depth] */
  int *reader;          /* [whole->slot_count] the last piece that reads the slot, or -1 */
  int *slot_of;         /* [whole->slot_count] where it stands in the current piece, or -1 */
  const tt_trace_node *ends[TT_FUSE_PIECES + 1]; /* of the pieces as chunks of their own */
} parts;

static void parts_deinit(parts *p) {
  tt_free(p->path);
  tt_free(p->reader);
  tt_free(p->slot_of);
}

static tt_status parts_init(parts *p, const tt_fusing *fuse, const tt_section *whole) {
  size_t slots = (size_t)whole->slot_count, depth = (size_t)whole->at->depth;
  p->whole = whole;
  p->path = tt_malloc(sizeof(tt_trace_node *) * depth);
  p->reader = tt_malloc(sizeof *p->reader * slots);
  p->slot_of = tt_malloc(sizeof *p->slot_of * slots);
  if (!p->path || !p->reader || !p->slot_of) return tt_out_of_memory();
  for (size_t i = 0; i < slots; i++) p->reader[i] = -1;
  int number = fuse->count;
  for (tt_trace_node *node = whole->at; node->parent; node = node->parent) {
    const tt_step *step = &node->step;
    p->path[node->depth - 1] = node;
    if (number > 0 && node->depth <= fuse->ends[number - 1]->depth) number--;
    for (int i = 0; i < step->call->input_count; i++)
      if (p->reader[step->inputs[i]] < number) p->reader[step->inputs[i]] = number;
  }
  return TT_SUCCESS;
}

/* The step for an operator of the piece; slots are numbered as in a chunk of its own. */
static tt_status follow(parts *p, const tt_step *step, tt_section *piece, int *slot_count) {
  enum { LOCAL = 64 };
  int local[LOCAL] = {0}, count = step->call->input_count;
  int *slots = count <= LOCAL ? local : tt_malloc(sizeof *slots * (size_t)count);
  if (!slots) return tt_out_of_memory();
  for (int i = 0; i < count; i++) {
    int *slot = &p->slot_of[step->inputs[i]];
    if (*slot < 0) *slot = (*slot_count)++;
    slots[i] = *slot;
  }
  tt_status status =
      tt_trace_step(&piece->device->trace, piece->at, step->call, slots, *slot_count, &piece->at);
  for (int k = 0; k < step->call->output_count; k++)
    p->slot_of[step->first_output + k] = (*slot_count)++;
  if (slots != local) tt_free(slots);
  return status;
}

/* Operators `first` to `last` as a section of their own, the chunk's piece `number`. */
static tt_status cut_out(parts *p, int number, int first, int last, tt_section *piece) {
  const tt_section *whole = p->whole;
  int count = 0, made = p->path[first]->step.first_output;
  int word_at = p->path[first]->step.word_at;
  for (int i = 0; i < whole->slot_count; i++) p->slot_of[i] = -1;
  for (int i = first; i <= last; i++) TT_TRY(follow(p, &p->path[i]->step, piece, &count));
  const tt_trace_node *end = p->path[last];
  int words = end->step.word_at + end->step.call->word_count - word_at;
  TT_TRY(tt_section_reserve(piece, count, last - first + 1, words));
  memcpy(piece->sites, whole->sites + first, sizeof *piece->sites * (size_t)(last - first + 1));
  if (words) memcpy(piece->words, whole->words + word_at, sizeof *piece->words * (size_t)words);
  for (int i = 0; i < end->slot_count; i++) {
    int slot = p->slot_of[i];
    if (slot < 0) continue;
    bool result = i >= made && !whole->is_input[i];
    piece->slots[slot] = tt_value_retain(whole->slots[i]);
    piece->is_input[slot] = !result;
    piece->live[slot] = result && (whole->live[i] || p->reader[i] > number);
  }
  piece->slot_count = count;
  piece->word_count = words;
  return TT_SUCCESS;
}

/* A program that returns more than is needed will do: before it was fused, the piece ended while
 * more of its results were held. */
static tt_status launch_piece(parts *p, int number, int first, int last, tt_cut why,
                              const tt_policy *policy, tt_launch **out) {
  tt_section piece;
  tt_section_init(&piece, p->whole->device);
  tt_status status = cut_out(p, number, first, last, &piece);
  p->ends[number] = piece.at;
  if (!status && tt_section_any_live(&piece))
    status = tt_section_launch(&piece, tt_trace_find(piece.at, piece.live, true), why, policy, out);
  tt_section_deinit(&piece);
  return status;
}

/* A fused program is worth it where all pieces come again, not all are the same, and they were
 * compiled fast. */
static bool worthwhile(const parts *p, int count) {
  bool differ = false;
  int64_t took = 0;
  for (int i = 0; i < count; i++) {
    if (p->ends[i]->met < 2) return false;
    differ |= p->ends[i] != p->ends[0];
    for (const tt_live_set *v = p->ends[i]->live_sets; v; v = v->next)
      took += atomic_load(&v->program->compile_ns);
  }
  return differ && took <= MAX_COMPILE_NS;
}

static tt_status launch_pieces(const tt_fusing *fuse, const tt_section *whole, tt_cut why,
                               const tt_policy *policy, bool *worth, tt_launch **out) {
  parts p = {0};
  tt_launch **end = out;
  tt_status status = parts_init(&p, fuse, whole);
  for (int i = 0, first = 0; i <= fuse->count && !status; i++) {
    bool last = i == fuse->count;
    int depth = last ? whole->at->depth : fuse->ends[i]->depth;
    status = launch_piece(&p, i, first, depth - 1, last ? why : TT_CUT_CONTENT, policy, end);
    if (*end) end = &(*end)->next;
    first = depth;
  }
  *worth = !status && worthwhile(&p, fuse->count + 1);
  parts_deinit(&p);
  if (!status) return TT_SUCCESS;
  tt_launch_destroy_list(*out);
  *out = NULL;
  return status;
}

/* -- Closing -- */

/* A fused program that cannot be made is none: the pieces have run. */
static void ask(tt_group *group, tt_section *whole, tt_cut why) {
  tt_live_set *live_set = NULL;
  tt_status status = tt_section_program(whole, why, TT_WANT_BACKGROUND, &live_set);
  if (!status) {
    group->program = live_set->program;
    return;
  }
  group->apart = true;
  tt_log(TT_LOG_COMPILE, "chunks stay apart: %s", tt_status_message(status));
  tt_status_release(status);
}

tt_status tt_fuse_close(tt_fusing *fuse, tt_section *section, tt_cut why, const tt_policy *policy,
                        tt_launch **out) {
  tt_group *group = fuse->group;
  bool worth = false, by_chance = why != TT_CUT_CONTENT && why != TT_CUT_STOP;
  *out = NULL;
  if (!tt_section_any_live(section)) return TT_SUCCESS;
  tt_live_set *live_set = tt_trace_find(section->at, section->live, false);
  if (live_set) group->program = live_set->program;
  if (live_set && tt_program_is_ready(live_set->program)) {
    tt_count_add(TT_COUNT_FUSED, fuse->count + 1);
    if (group->misses) group->misses--;
    return tt_section_launch(section, live_set, why, policy, out);
  }
  TT_TRY(launch_pieces(fuse, section, why, policy, &worth, out));
  if (!fuse->trying) group->apart = ++group->misses > MISSES;
  else if (!live_set && worth && !by_chance && !policy->known_only) ask(group, section, why);
  return TT_SUCCESS;
}
