#include "stream/lanes.h"

#include "base/thread.h"

/* Where the calling thread records, by stream; what another stream took the place of, it forgets.
 */
typedef struct place {
  const tt_lanes *of;
  int lane;
} place;

enum { PLACES = 8 };
static _Thread_local place places[PLACES];

void tt_lanes_init(tt_lanes *lanes, tt_device *device, int stream) {
  *lanes = (tt_lanes){.device = device, .number = (unsigned)(device->index + stream)};
}

void tt_lanes_deinit(tt_lanes *lanes) {
  for (int i = 0; i < lanes->count; i++) {
    if (!lanes->chunks[i]) continue;
    tt_chunk_deinit(lanes->chunks[i]);
    tt_free(lanes->chunks[i]);
  }
}

void tt_lanes_reclaim(tt_lanes *lanes) {
  for (int i = 0; i < lanes->count; i++)
    if (lanes->chunks[i]) tt_chunk_reclaim(lanes->chunks[i]);
}

/* The number of the calling thread's lane. */
static int *own_lane(const tt_lanes *lanes, const tt_policy *policy) {
  place *own = &places[lanes->number % PLACES];
  if (own->of == lanes) return &own->lane;
  bool with_the_first = policy->follows && lanes->used == 1;
  *own = (place){lanes, with_the_first ? lanes->count - 1 : tt_thread_number() % TT_LANES};
  return &own->lane;
}

static tt_status open_lane(tt_lanes *lanes, int lane, tt_chunk **out) {
  tt_chunk *chunk = tt_malloc(sizeof *chunk);
  if (!chunk) return tt_out_of_memory();
  tt_chunk_init(chunk, lanes->device);
  lanes->chunks[lane] = *out = chunk;
  if (lane >= lanes->count) lanes->count = lane + 1;
  lanes->used++;
  return TT_SUCCESS;
}

tt_chunk *tt_lane_own(const tt_lanes *lanes, const tt_policy *policy) {
  return lanes->chunks[*own_lane(lanes, policy)];
}

/* The open chunk that uses the value, or makes it; -1: none. */
static int find(const tt_lanes *lanes, const tt_value *value) {
  for (int i = 0; i < lanes->count; i++)
    if (lanes->chunks[i] && lanes->chunks[i]->id == value->section) return i;
  return -1;
}

static bool unlaunched(const tt_value *value) {
  return tt_value_get_state(value) == TT_VALUE_PENDING && !value->queue;
}

tt_chunk *tt_lane_of(const tt_lanes *lanes, const tt_value *value) {
  int lane = unlaunched(value) ? find(lanes, value) : -1;
  return lane < 0 ? NULL : lanes->chunks[lane];
}

tt_status tt_lane_for(tt_lanes *lanes, const tt_policy *policy, tt_value *const *inputs, int count,
                      tt_chunk **out) {
  int *at = own_lane(lanes, policy), own = *at, lane = own;
  bool here = false; /* one of them is in the thread's own */
  for (int i = 0; i < count; i++) {
    int found = find(lanes, inputs[i]);
    if (found < 0) continue;
    bool made = unlaunched(inputs[i]);
    here |= found == own && made;
    if (made && lane == own) lane = found;
    if (!made) lanes->chunks[found]->shares |= found != own;
  }
  if (here) lane = own;
  *at = lane;
  *out = lanes->chunks[lane];
  return *out ? TT_SUCCESS : open_lane(lanes, lane, out);
}

void tt_lanes_note_wait(tt_lanes *lanes, const tt_policy *policy) {
  tt_chunk *own = tt_lane_own(lanes, policy);
  if (own) tt_chunk_note_wait(own, policy);
}

tt_chunk *tt_lanes_forgotten(tt_lanes *lanes, const tt_chunk *ended) {
  tt_chunk *found = NULL;
  for (int i = 0; i < lanes->count; i++) {
    tt_chunk *chunk = lanes->chunks[i];
    if (!chunk || chunk == ended || tt_chunk_empty(chunk)) continue;
    if (++chunk->idle > TT_LANE_PATIENCE) found = chunk;
  }
  return found;
}
