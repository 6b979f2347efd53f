/* An observer: who wants to know what one thread does to storages, as templates do. */
#ifndef TT_OBSERVER_H
#define TT_OBSERVER_H

struct tt_operation;
struct tt_storage;

typedef struct tt_observer {
  /* An operator was recorded; `results` as of tt_stream_record. */
  void (*called)(struct tt_observer *observer, const struct tt_operation *operation,
                 struct tt_storage *const *results);
  void (*created)(struct tt_observer *observer, const struct tt_storage *storage);
  void (*freed)(struct tt_observer *observer, const struct tt_storage *storage);
  /* An unwritten storage has got another type. */
  void (*retyped)(struct tt_observer *observer, const struct tt_storage *storage);
  /* The host read or wrote a value, or something else happened that could not be done again. */
  void (*disturbed)(struct tt_observer *observer);
} tt_observer;

/* Tells this thread's observer, if it has one, that it was disturbed. */
void tt_observer_disturb(void);

#ifndef __cplusplus
/* This thread's; NULL: nobody looks, which costs next to nothing. */
extern _Thread_local tt_observer *tt_observer_current;
#endif

#endif
