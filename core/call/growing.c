#include "call/growing.h"

#include "base/env.h"

#include <string.h>

enum { MOST_SEEN = 4096, FEW_SIZES = 2, ENOUGH_MEETINGS = 2 };
enum { FEW_COLUMNS = 8 }; /* such as coordinates, of which there are always as many */

typedef struct tt_sizes {
  bool grows;
  int count;
  int64_t seen[FEW_SIZES]; /* joins and ranges note but one; fractions only how often they met */
} sizes;

void tt_growing_init(tt_growing *growing) {
  *growing = (tt_growing){.seen = TT_INTERN_INIT};
  pthread_mutex_init(&growing->lock, NULL);
}

static void forget(tt_growing *growing) {
  memset(growing->fractions, 0, sizeof growing->fractions);
  for (size_t i = 0; i < growing->seen.capacity; i++)
    if (growing->seen.entries[i].key) tt_free(growing->seen.entries[i].value);
  tt_intern_deinit(&growing->seen);
}

void tt_growing_deinit(tt_growing *growing) {
  forget(growing);
  pthread_mutex_destroy(&growing->lock);
}

/* Of `what`, told apart by its address. NULL: it cannot be remembered. */
static sizes *sizes_of(tt_growing *growing, const void *what, const tt_type *type, int dim) {
  int64_t key[TT_MAX_RANK + 4] = {(int64_t)(uintptr_t)what, type->dtype, type->rank, dim};
  for (int i = 0; i < type->rank; i++) key[4 + i] = i == dim ? -1 : type->dims[i];
  size_t size = sizeof *key * (size_t)(4 + type->rank);
  sizes *found = tt_intern_find(&growing->seen, key, size);
  if (found) return found;
  if (growing->seen.count >= MOST_SEEN) forget(growing);
  sizes *made = tt_calloc(1, sizeof *made);
  tt_status status = made ? tt_intern_add(&growing->seen, key, size, made) : TT_SUCCESS;
  if (!status) return made;
  tt_status_release(status);
  tt_free(made);
  return NULL;
}

static bool is_set_to(const char *value) { return strcmp(tt_env(TT_ENV_GROWING), value) == 0; }

/* Whether a third size is seen of what is told apart so; that of a single element is none. */
static bool changes(tt_growing *growing, const void *what, const tt_type *type, int dim,
                    int64_t size) {
  if (size < 2) return false;
  pthread_mutex_lock(&growing->lock);
  sizes *of = sizes_of(growing, what, type, dim);
  int i = 0;
  while (of && i < FEW_SIZES && i < of->count && of->seen[i] != size) i++;
  if (of && i >= FEW_SIZES) {
    of->grows = true;
  } else if (of && i == of->count) {
    of->seen[i] = size;
    of->count++;
  }
  bool grows = of && of->grows;
  pthread_mutex_unlock(&growing->lock);
  return grows;
}

/* Of fractions, a dim that is not the last: whether it is known to go along with whole numbers. */
static bool goes_along(tt_growing *growing, const tt_type *type, int dim) {
  static const char fractions;
  pthread_mutex_lock(&growing->lock);
  sizes *of = sizes_of(growing, &fractions, type, dim);
  bool grows = of && of->grows;
  if (of && !grows)
    growing->fractions[growing->next_fractions++ % TT_MOST_FRACTIONS] =
        (tt_fractions){of, type->dims[dim]};
  pthread_mutex_unlock(&growing->lock);
  return grows;
}

/* Whole numbers are as many as these, which changes: so are fractions uploaded a moment ago. */
static void meet(tt_growing *growing, int64_t size) {
  pthread_mutex_lock(&growing->lock);
  for (int i = 0; i < TT_MOST_FRACTIONS; i++) {
    tt_fractions *one = &growing->fractions[i];
    if (!one->of || one->size != size) continue;
    one->of->grows = ++one->of->count >= ENOUGH_MEETINGS;
    one->of = NULL;
  }
  pthread_mutex_unlock(&growing->lock);
}

/* -- Lengths that live -- */

/* Which one it is, or -1. */
static int find_live(tt_growing *growing, int64_t length) {
  for (int i = 0; i < TT_MOST_LIVE; i++)
    if (atomic_load_explicit(&growing->live[i].length, memory_order_relaxed) == length) return i;
  return -1;
}

/* From a length to another one; 0: none. */
static void become(tt_growing *growing, tt_live_length *live, int64_t length) {
  int before = atomic_load_explicit(&live->length, memory_order_relaxed) != 0;
  atomic_store_explicit(&live->length, length, memory_order_relaxed);
  atomic_fetch_add_explicit(&growing->live_count, (length != 0) - before, memory_order_relaxed);
  live->storages = length != 0;
}

bool tt_growing_is_live(tt_growing *growing, int64_t size) {
  return size > 0 && find_live(growing, size) >= 0;
}

/* One that has no length, else the one that has not been needed for longest. */
static tt_live_length *make_way(tt_growing *growing) {
  int none = find_live(growing, 0);
  tt_live_length *oldest = &growing->live[none < 0 ? 0 : none];
  for (int i = 1; i < TT_MOST_LIVE && none < 0; i++)
    if (growing->live[i].latest < oldest->latest) oldest = &growing->live[i];
  return oldest;
}

void tt_growing_enter(tt_growing *growing, int64_t length) {
  pthread_mutex_lock(&growing->lock);
  int found = find_live(growing, length);
  tt_live_length *live = found < 0 ? make_way(growing) : &growing->live[found];
  if (found < 0) become(growing, live, length);
  else live->storages++;
  live->latest = ++growing->entered;
  pthread_mutex_unlock(&growing->lock);
}

void tt_growing_leave(tt_growing *growing, int64_t length) {
  pthread_mutex_lock(&growing->lock);
  int found = find_live(growing, length); /* -1: it made way */
  tt_live_length *live = &growing->live[found < 0 ? 0 : found];
  if (found >= 0 && --live->storages == 0) become(growing, live, 0);
  pthread_mutex_unlock(&growing->lock);
}

/* -- What is seen -- */

static bool upload_changes(tt_growing *growing, const tt_type *type, int dim) {
  static const char uploads;
  int64_t size = type->dims[dim];
  if (!is_set_to("on")) return size > 1;
  if (tt_is_float(type->dtype) || tt_is_complex(type->dtype)) {
    bool last = dim == type->rank - 1 && type->rank > 1;
    if (last && size < FEW_COLUMNS) return false;
    if (tt_growing_any(growing) && tt_growing_is_live(growing, size)) return true;
    return !last && type->rank > 1 && size > 1 && goes_along(growing, type, dim);
  }
  bool grows = changes(growing, &uploads, type, dim, size);
  if (grows) meet(growing, size);
  return grows;
}

int tt_growing_upload(tt_growing *growing, const tt_type *type) {
  int found = -1;
  bool outermost = is_set_to("first") || (is_set_to("on") && tt_is_float(type->dtype));
  if (is_set_to("off")) return -1;
  for (int dim = 0; dim < type->rank; dim++) {
    bool grows = upload_changes(growing, type, dim);
    if (grows && !(found >= 0 && outermost)) found = dim;
  }
  return found;
}

void tt_growing_forget(tt_growing *growing) {
  pthread_mutex_lock(&growing->lock);
  forget(growing);
  for (int i = 0; i < TT_MOST_LIVE; i++) become(growing, &growing->live[i], 0);
  pthread_mutex_unlock(&growing->lock);
}

bool tt_growing_join(tt_growing *growing, const tt_type *type, int dim, int64_t part) {
  static const char joins;
  if (type->dims[dim] < 2 || !is_set_to("on")) return type->dims[dim] > 1 && !is_set_to("off");
  pthread_mutex_lock(&growing->lock);
  sizes *of = sizes_of(growing, &joins, type, dim);
  if (of && of->seen[0] == part) of->grows = true;
  if (of) of->seen[0] = type->dims[dim];
  bool grows = of && of->grows;
  pthread_mutex_unlock(&growing->lock);
  return grows;
}

bool tt_growing_range(tt_growing *growing, int64_t start, int64_t end, bool known) {
  static const char ranges;
  enum { ENOUGH = 3, LONGEST_RANGE = 1 << 16, MOST_OF_F32 = 1 << 24 };
  if (start < -MOST_OF_F32 || end > MOST_OF_F32 || start > end) return false;
  int64_t size = end - start;
  if (size > LONGEST_RANGE) return false;
  if (size < 2 || !is_set_to("on")) return size > 1 && !is_set_to("off");
  if (tt_growing_any(growing) && tt_growing_is_live(growing, size)) return true;
  if (known) return false;
  tt_type type = {.dtype = TT_I64, .rank = 1, .dims = {size}};
  pthread_mutex_lock(&growing->lock);
  sizes *of = sizes_of(growing, &ranges, &type, -1);
  int64_t run = of ? of->seen[0] + 1 : 1; /* of sizes, each longer by one than the last */
  type.dims[0]++;
  of = sizes_of(growing, &ranges, &type, -1);
  if (of && of->seen[0] < run) of->seen[0] = run;
  pthread_mutex_unlock(&growing->lock);
  return run >= ENOUGH;
}

bool tt_growing_count(tt_growing *growing, const tt_type *mask, int64_t count) {
  static const char masks;
  if (!is_set_to("on")) return count > 1 && !is_set_to("off");
  /* A mask of what a mask picked is of another size each time; so are those of lists. */
  bool sizes_change = mask->rank == 1 && changes(growing, &masks, mask, 0, mask->dims[0]);
  return changes(growing, &masks, mask, -1, count) || (sizes_change && count > 1);
}
