#include "run/value.h"

#include "run/run.h"

tt_status tt_value_create(tt_stream *stream, const tt_type *type, uint32_t site, tt_value **out) {
  tt_value *value = tt_malloc(sizeof *value); /* calloc takes nothing from the thread's own cache */
  if (!value) return tt_out_of_memory();
  *value = (tt_value){
      .refs = 1, .state = TT_VALUE_PENDING, .stream = stream, .type = type, .site = site};
  *out = value;
  return TT_SUCCESS;
}

tt_status tt_value_borrow(tt_value *lender, uint32_t site, tt_value **out) {
  TT_TRY(tt_value_create(lender->stream, lender->type, site, out));
  (*out)->state = TT_VALUE_READY;
  (*out)->buffer = lender->buffer;
  (*out)->lender = tt_value_retain(lender);
  return TT_SUCCESS;
}

void tt_value_release(tt_value *value) {
  if (!value || atomic_fetch_sub_explicit(&value->refs, 1, memory_order_acq_rel) != 1) return;
  if (value->lender) {
    tt_value_release(value->lender);
  } else if (value->buffer) {
    tt_buffer_destroy(tt_runtime_client(), value->buffer);
    tt_stream_unlist(value->stream, value);
  }
  tt_status_release(value->error);
  tt_free(value);
}

void tt_value_fulfil(tt_value *value, tt_buffer *buffer) {
  value->buffer = buffer;
  if (!tt_type_bytes(value->type, &value->bytes)) value->bytes = 0;
  tt_stream_list(value->stream, value);
  atomic_store_explicit(&value->state, TT_VALUE_READY, memory_order_release);
}

void tt_value_fail(tt_value *value, tt_status error) {
  value->error = error;
  atomic_store_explicit(&value->state, TT_VALUE_FAILED, memory_order_release);
}
