/* A value: what a storage holds at one moment. Immutable once ready, shared by reference count.
 * It is either a device buffer, or the result of a launch that has not ended, or an error. */
#ifndef TT_VALUE_H
#define TT_VALUE_H

#include "call/type.h"
#include "stream/account.h"

typedef enum tt_value_state { TT_VALUE_PENDING, TT_VALUE_READY, TT_VALUE_FAILED } tt_value_state;

typedef struct tt_value {
  TT_ATOMIC(int) refs;
  TT_ATOMIC(int) state;    /* tt_value_state; stored with release by the thread that launches */
  tt_account *account;     /* of its device; outlives it */
  tt_holding holding;      /* its type, bytes and line */
  tt_buffer *buffer;       /* when ready */
  struct tt_value *lender; /* whose buffer it is, if not its own */
  tt_reach reach;          /* of a bounded value (call/bounded.h) */
  const tt_type *exact;    /* its type without padding, interned, which its storage has */
  tt_status error;         /* when failed */
  /* While it is pending, guarded by the device's lock: the section (section.h) that it was recorded
   * in, and as which slot; and, once that was launched, the job that makes it. */
  struct tt_stream *stream;
  uint64_t section;
  int slot;
  struct tt_queue *queue; /* NULL: it was not launched yet */
  uint64_t ticket;
} tt_value;

#ifndef __cplusplus
/* A pending value with one reference, of an interned type. `stream` is who records it, or NULL. */
tt_status tt_value_create(tt_account *account, struct tt_stream *stream, const tt_type *type,
                          uint32_t site, tt_value **out);
static inline tt_value *tt_value_retain(tt_value *value) {
  if (value) atomic_fetch_add_explicit(&value->refs, 1, memory_order_relaxed);
  return value;
}
void tt_value_release(tt_value *value); /* thread-safe; NULL is allowed */
static inline tt_value_state tt_value_get_state(const tt_value *value) {
  return (tt_value_state)atomic_load_explicit(&value->state, memory_order_acquire);
}
/* A ready value that shows a ready lender's buffer and retains the lender. */
tt_status tt_value_borrow(tt_value *lender, uint32_t site, tt_value **out);
static inline bool tt_value_is_bounded(const tt_value *value) { return value->reach.of[0] > 0; }
/* It has a bounded type, of which that many elements count. */
tt_status tt_value_set_reach(tt_value *value, const tt_reach *reach);
/* Nobody else holds it. */
static inline bool tt_value_unique(const tt_value *value) {
  return atomic_load_explicit(&value->refs, memory_order_acquire) == 1;
}
/* Nobody else needs its buffer. */
static inline bool tt_value_donatable(const tt_value *value) {
  return tt_value_unique(value) && !value->lender;
}
/* Pending -> ready (takes the buffer) or failed (takes the status). */
void tt_value_fulfil(tt_value *value, tt_buffer *buffer);
void tt_value_fail(tt_value *value, tt_status error);
#endif

#endif
