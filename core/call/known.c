#include "call/known.h"

#include "call/explain.h"

#include <string.h>

enum { REMEMBERED = 32 };

typedef struct family {
  const tt_call *calls[REMEMBERED];
  int count;
} family;

void tt_known_calls_explain(tt_known_calls *known, const tt_call_spec *spec, tt_text *text) {
  const char *site = tt_site_text(spec->site);
  tt_text_printf(text, "%s%s%s: ", spec->name, *site ? ", called at " : "", site);
  pthread_mutex_lock(&known->lock);
  const family *calls = tt_intern_find(&known->families, spec->name, strlen(spec->name));
  const tt_call_spec *nearest = NULL;
  int fewest = 0;
  for (int i = 0; calls && i < calls->count && i < REMEMBERED; i++) { /* the latest comes first */
    const tt_call *one = calls->calls[(calls->count - 1 - i) % REMEMBERED];
    int count = tt_explain_difference(spec, &one->spec, NULL);
    if (!nearest || count < fewest) fewest = count, nearest = &one->spec;
  }
  if (nearest) (void)tt_explain_difference(spec, nearest, text);
  else tt_text_printf(text, "the first call of this operator");
  pthread_mutex_unlock(&known->lock);
}

void tt_known_calls_init(tt_known_calls *known) {
  pthread_mutex_init(&known->lock, NULL);
  known->families = (tt_intern)TT_INTERN_INIT;
}

/* A call that cannot be remembered is compared with none. */
void tt_known_calls_add(tt_known_calls *known, const tt_call *call) {
  size_t size = strlen(call->name);
  pthread_mutex_lock(&known->lock);
  family *calls = tt_intern_find(&known->families, call->name, size);
  if (!calls) {
    calls = tt_calloc(1, sizeof *calls);
    tt_status status = calls ? tt_intern_add(&known->families, call->name, size, calls) : NULL;
    if (status) {
      tt_free(calls);
      calls = NULL;
    }
    tt_status_release(status);
  }
  if (calls) calls->calls[calls->count++ % REMEMBERED] = call;
  pthread_mutex_unlock(&known->lock);
}

void tt_known_calls_clear(tt_known_calls *known) {
  pthread_mutex_lock(&known->lock);
  for (size_t i = 0; i < known->families.capacity; i++)
    if (known->families.entries[i].key) tt_free(known->families.entries[i].value);
  tt_intern_deinit(&known->families);
  pthread_mutex_unlock(&known->lock);
}

void tt_known_calls_deinit(tt_known_calls *known) {
  tt_known_calls_clear(known);
  pthread_mutex_destroy(&known->lock);
}
