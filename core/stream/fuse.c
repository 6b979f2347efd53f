#include "run/join.h"

#include "run/explain.h"
#include "run/run.h"

#include <string.h>

/* How often a group is kept together before its program is there, and how often the device
 * must be behind in a row when it comes; and how much oftener it may be missed than met, joined. */
enum { TRIES = 4, LAGS = 4, MISSES = 4, MAX_LENGTH = 2048 };
#define PIECES                                                                                     \
  ((tt_cut_limits){.least = 2, .most = TT_JOIN_PIECES, .window = 8, .grams = 1, .bytes = INT64_MAX})
#define MAX_BYTES (INT64_C(1) << 28)
#define MAX_COMPILE_NS INT64_C(20000000000)

/* -- Deciding -- */

void tt_join_init(tt_joining *join) { *join = (tt_joining){.cutter.limits = PIECES}; }

/* The group that begins with the piece which just ended. */
static tt_group *find_group(tt_joining *join) {
  uint64_t pair[] = {join->before, join->hash};
  uint64_t key = tt_hash_bytes(pair, sizeof pair, 0) | 1;
  tt_group *group = &join->groups[key % TT_JOIN_GROUPS];
  if (group->key != key) *group = (tt_group){.key = key};
  return group;
}

/* The plugin says what a program needs only once it is compiled. */
static bool fits(tt_program *program) {
  tt_program_memory needs = {0};
  return !tt_program_needs(program, &needs) || needs.temporaries <= MAX_BYTES;
}

/* Is the open group kept together? */
static bool begins(tt_joining *join, bool behind) {
  tt_group *group = join->group;
  if (tt_runtime_deterministic() || group->apart) return false;
  join->trying = group->tries < TRIES && !tt_programs_forbidden();
  if (join->trying) return ++group->tries;
  if (!behind) group->lags = 0;
  else if (group->lags < LAGS) group->lags++;
  if (!group->program || group->lags < LAGS || !tt_program_poll(group->program)) return false;
  if (!group->fits) group->apart = !fits(group->program);
  return group->fits = !group->apart;
}

/* A piece has ended. */
static void note_piece(tt_joining *join) {
  join->before = join->hash;
  join->hash = 0;
}

/* What ends a group: a new piece, whose program is still to be compiled; and one that is as the
 * last one was, since the two share a program. */
bool tt_join_pass(tt_joining *join, const tt_section *section, int64_t bytes, bool behind) {
  bool fresh = join->count == 0 && !section->at->variants;
  bool alone = fresh || join->hash == join->before;
  if (join->pieces++ == 0) {
    join->group = find_group(join);
    join->passing = !alone && begins(join, behind);
  }
  bool last = tt_cutter_add(&join->cutter, join->hash, join->pieces, 0) != TT_CUT_NONE || alone ||
              join->count == TT_JOIN_PIECES || section->at->depth > MAX_LENGTH || bytes > MAX_BYTES;
  note_piece(join);
  if (last) join->pieces = 0;
  if (last || !join->passing) return false;
  join->ends[join->count++] = section->at;
  join->depth = section->at->depth;
  join->bytes = bytes;
  return true;
}

void tt_join_reset(tt_joining *join, tt_cut why) {
  if (why != TT_CUT_CONTENT) {
    join->pieces = 0;
    note_piece(join);
  }
  join->count = join->depth = 0;
  join->bytes = 0;
}

/* -- Pieces -- */

/* A chunk that is taken apart. */
typedef struct parts {
  const tt_section *whole;
  tt_step **path; /* [whole->at->depth] */
  int *reader;    /* [whole->slot_count] the last piece that reads the slot, or -1 */
  int *slot_of;   /* [whole->slot_count] where it stands in the current piece, or -1 */
  const tt_step *ends[TT_JOIN_PIECES + 1]; /* of the pieces as chunks of their own */
} parts;

static void parts_deinit(parts *p) {
  tt_free(p->path);
  tt_free(p->reader);
  tt_free(p->slot_of);
}

static tt_status parts_init(parts *p, const tt_joining *join, const tt_section *whole) {
  size_t slots = (size_t)whole->slot_count, depth = (size_t)whole->at->depth;
  p->whole = whole;
  p->path = tt_malloc(sizeof(tt_step *) * depth);
  p->reader = tt_malloc(sizeof *p->reader * slots);
  p->slot_of = tt_malloc(sizeof *p->slot_of * slots);
  if (!p->path || !p->reader || !p->slot_of) return tt_out_of_memory();
  for (size_t i = 0; i < slots; i++) p->reader[i] = -1;
  int number = join->count;
  for (tt_step *step = whole->at; step->call; step = step->parent) {
    p->path[step->depth - 1] = step;
    if (number > 0 && step->depth <= join->ends[number - 1]->depth) number--;
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
      tt_trace_step(piece->trace, piece->at, step->call, slots, *slot_count, &piece->at);
  for (int k = 0; k < step->call->output_count; k++)
    p->slot_of[step->first_output + k] = (*slot_count)++;
  if (slots != local) tt_free(slots);
  return status;
}

/* Operators `first` to `last` as a section of their own, the chunk's piece `number`. */
static tt_status cut_out(parts *p, int number, int first, int last, tt_section *piece) {
  const tt_section *whole = p->whole;
  int count = 0, made = p->path[first]->first_output, word_at = p->path[first]->word_at;
  for (int i = 0; i < whole->slot_count; i++) p->slot_of[i] = -1;
  for (int i = first; i <= last; i++) TT_TRY(follow(p, p->path[i], piece, &count));
  const tt_step *end = p->path[last];
  int words = end->word_at + end->call->word_count - word_at;
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

/* A program that returns more than is needed will do: before it was joined, the piece ended while
 * more of its results were held. */
static tt_status launch_piece(parts *p, int number, int first, int last, tt_cut why,
                              tt_launch **out) {
  tt_section piece;
  tt_section_init(&piece, p->whole->trace);
  tt_status status = cut_out(p, number, first, last, &piece);
  p->ends[number] = piece.at;
  if (!status && tt_section_any_live(&piece))
    status = tt_section_launch(&piece, tt_trace_find(piece.at, piece.live, true), why, out);
  tt_section_deinit(&piece);
  return status;
}

/* A joined program is worth it where all pieces come again, not all are the same, and they were
 * compiled fast. */
static bool worthwhile(const parts *p, int count) {
  bool differ = false;
  int64_t took = 0;
  for (int i = 0; i < count; i++) {
    if (p->ends[i]->met < 2) return false;
    differ |= p->ends[i] != p->ends[0];
    for (const tt_variant *v = p->ends[i]->variants; v; v = v->next)
      took += atomic_load(&v->program->compile_ns);
  }
  return differ && took <= MAX_COMPILE_NS;
}

static tt_status launch_pieces(const tt_joining *join, const tt_section *whole, tt_cut why,
                               bool *worth, tt_launch **out) {
  parts p = {0};
  tt_launch **end = out;
  tt_status status = parts_init(&p, join, whole);
  for (int i = 0, first = 0; i <= join->count && !status; i++) {
    bool last = i == join->count;
    int depth = last ? whole->at->depth : join->ends[i]->depth;
    status = launch_piece(&p, i, first, depth - 1, last ? why : TT_CUT_CONTENT, end);
    if (*end) end = &(*end)->next;
    first = depth;
  }
  *worth = !status && worthwhile(&p, join->count + 1);
  parts_deinit(&p);
  if (!status) return TT_SUCCESS;
  tt_launch_destroy_list(*out);
  *out = NULL;
  return status;
}

/* -- Closing -- */

/* A joined program that cannot be made is none: the pieces have run. */
static void ask(tt_group *group, tt_section *whole, tt_cut why) {
  tt_status status = tt_section_program(whole, why, true, &group->program);
  if (!status) return;
  group->apart = true;
  tt_log(TT_LOG_COMPILE, "chunks stay apart: %s", tt_status_message(status));
  tt_status_release(status);
}

tt_status tt_join_close(tt_joining *join, tt_section *section, tt_cut why, tt_launch **out) {
  tt_group *group = join->group;
  bool worth = false, by_chance = why != TT_CUT_CONTENT && why != TT_CUT_STOP;
  *out = NULL;
  if (!tt_section_any_live(section)) return TT_SUCCESS;
  tt_program *program = tt_trace_find(section->at, section->live, false);
  if (program) group->program = program;
  if (program && tt_program_is_ready(program)) {
    tt_count_add(TT_COUNT_JOINED, join->count + 1);
    if (group->misses) group->misses--;
    return tt_section_launch(section, program, why, out);
  }
  TT_TRY(launch_pieces(join, section, why, &worth, out));
  if (!join->trying) group->apart = ++group->misses > MISSES;
  else if (!program && worth && !by_chance && !tt_programs_forbidden()) ask(group, section, why);
  return TT_SUCCESS;
}
