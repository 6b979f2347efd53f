#include "stream/account.h"

#include <assert.h>

void tt_account_init(tt_account *account, tt_client *client, int64_t limit) {
  account->client = client;
  account->limit = limit;
  account->listed = NULL;
  pthread_mutex_init(&account->lock, NULL);
}

void tt_account_deinit(tt_account *account) { pthread_mutex_destroy(&account->lock); }

static void list(tt_account *account, tt_holding *holding) {
  pthread_mutex_lock(&account->lock);
  holding->next = account->listed;
  holding->link = &account->listed;
  if (holding->next) holding->next->link = &holding->next;
  account->listed = holding;
  pthread_mutex_unlock(&account->lock);
}

static void raise_peak(_Atomic(int64_t) *peak, int64_t now) {
  int64_t most = atomic_load_explicit(peak, memory_order_relaxed);
  while (now > most && !atomic_compare_exchange_weak(peak, &most, now)) {
  }
}

void tt_account_note(tt_account *account, int64_t change) {
  int64_t before = atomic_fetch_add_explicit(&account->tensors, change, memory_order_relaxed);
  raise_peak(&account->tensors_peak, before + change);
}

/* Only values that matter when memory runs out are listed, so that small ones take no lock. */
void tt_account_add(tt_account *account, tt_holding *holding) {
  int64_t bytes = holding->bytes;
  assert(bytes >= 0 && !holding->link);
  if (bytes >= TT_LISTED_BYTES) list(account, holding);
  int64_t now = atomic_fetch_add(&account->allocated, bytes) + bytes;
  atomic_fetch_add(&account->allocations, 1);
  atomic_fetch_add(&account->total, bytes);
  raise_peak(&account->peak, now);
}

void tt_account_remove(tt_account *account, tt_holding *holding) {
  atomic_fetch_sub(&account->allocated, holding->bytes);
  atomic_fetch_add(&account->frees, 1);
  if (holding->bytes < TT_LISTED_BYTES) return;
  pthread_mutex_lock(&account->lock);
  *holding->link = holding->next;
  if (holding->next) holding->next->link = holding->link;
  pthread_mutex_unlock(&account->lock);
}

int tt_account_largest(tt_account *account, tt_holding *out, int count) {
  int found = 0;
  pthread_mutex_lock(&account->lock);
  for (const tt_holding *one = account->listed; one; one = one->next) {
    int at = found < count ? found++ : count;
    for (; at > 0 && out[at - 1].bytes < one->bytes; at--)
      if (at < count) out[at] = out[at - 1];
    if (at < count) out[at] = *one;
  }
  pthread_mutex_unlock(&account->lock);
  return found;
}

void tt_account_read(tt_account *account, tt_memory *out) {
  *out = (tt_memory){.tensors = atomic_load(&account->tensors),
                     .tensors_peak = atomic_load(&account->tensors_peak),
                     .allocated = atomic_load(&account->allocated),
                     .peak = atomic_load(&account->peak),
                     .total_allocated = atomic_load(&account->total),
                     .allocations = atomic_load(&account->allocations),
                     .frees = atomic_load(&account->frees),
                     .limit = account->limit};
}

void tt_account_reset_peak(tt_account *account) {
  atomic_store(&account->tensors_peak, atomic_load(&account->tensors));
  atomic_store(&account->peak, atomic_load(&account->allocated));
}

void tt_account_reset_totals(tt_account *account) {
  atomic_store(&account->total, 0);
  atomic_store(&account->allocations, 0);
  atomic_store(&account->frees, 0);
}
