#include "stream/value.h"

#include "call/bounded.h"

#include <assert.h>

tt_status tt_value_create(tt_account *account, struct tt_stream *stream, const tt_type *type,
                          uint32_t site, tt_value **out) {
  tt_value *value = tt_malloc(sizeof *value); /* calloc takes nothing from the thread's own cache */
  if (!value) return tt_out_of_memory();
  *value = (tt_value){.refs = 1,
                      .state = TT_VALUE_PENDING,
                      .account = account,
                      .holding = {.type = type, .site = site},
                      .stream = stream};
  *out = value;
  return TT_SUCCESS;
}

tt_status tt_value_borrow(tt_value *lender, uint32_t site, tt_value **out) {
  assert(tt_value_get_state(lender) == TT_VALUE_READY);
  TT_TRY(tt_value_create(lender->account, NULL, lender->holding.type, site, out));
  (*out)->state = TT_VALUE_READY;
  (*out)->buffer = lender->buffer;
  (*out)->lender = tt_value_retain(lender);
  (*out)->reach = lender->reach;
  (*out)->exact = lender->exact;
  return TT_SUCCESS;
}

tt_status tt_value_set_reach(tt_value *value, const tt_reach *reach) {
  tt_type exact = tt_bounded_exact(value->holding.type, reach);
  value->reach = *reach;
  return tt_type_intern(&exact, &value->exact);
}

void tt_value_release(tt_value *value) {
  if (!value || atomic_fetch_sub_explicit(&value->refs, 1, memory_order_acq_rel) != 1) return;
  if (value->lender) {
    tt_value_release(value->lender);
  } else if (value->buffer) {
    tt_buffer_destroy(value->account->client, value->buffer);
    tt_account_remove(value->account, &value->holding);
  }
  tt_status_release(value->error);
  tt_free(value);
}

void tt_value_fulfil(tt_value *value, tt_buffer *buffer) {
  assert(tt_value_get_state(value) == TT_VALUE_PENDING && !value->buffer);
  value->buffer = buffer;
  value->holding.bytes = tt_type_held_bytes(value->holding.type);
  tt_account_add(value->account, &value->holding);
  atomic_store_explicit(&value->state, TT_VALUE_READY, memory_order_release);
}

void tt_value_fail(tt_value *value, tt_status error) {
  assert(tt_value_get_state(value) == TT_VALUE_PENDING && error);
  value->error = error;
  atomic_store_explicit(&value->state, TT_VALUE_FAILED, memory_order_release);
}
