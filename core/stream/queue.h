/* A queue: jobs that one thread starts in order, and their ends.
 *
 * A job has a ticket, counted from 1. It is *submitted* once it was started, and *retired* once it
 * has ended: where the plugin runs asynchronously, that is later and need not be in order. What is
 * under way in between is bounded, by its number and by the memory that it takes. */
#ifndef TT_QUEUE_H
#define TT_QUEUE_H

#include "pjrt/pjrt.h"

typedef struct tt_queue tt_queue;
typedef struct tt_job tt_job;

typedef struct tt_job_class {
  /* On the queue's thread. *end, if it is set, is an event for the end of what goes on after the
   * return, and the queue's. What the job holds and the plugin does not need is let go. */
  tt_status (*run)(tt_job *job, tt_event **end);
  /* Says more about an error that came after `run`; NULL: nothing. */
  tt_status (*explain)(tt_job *job, tt_status status);
  void (*destroy)(tt_job *job);
} tt_job_class;

/* Where the error of a job goes that somebody waits for: shared by the two, since either may be the
 * first to leave. */
typedef struct tt_outcome tt_outcome;
tt_outcome *tt_outcome_create(void); /* NULL when memory is out */
tt_outcome *tt_outcome_retain(tt_outcome *outcome);
void tt_outcome_release(tt_outcome *outcome); /* NULL is allowed */

/* The first member of what a job is. Owned by the queue once it was pushed. */
struct tt_job {
  const tt_job_class *is;
  tt_outcome *outcome; /* where its error goes instead of the queue's; NULL: the queue's */
  uint64_t ticket;
  int64_t bytes;       /* of the device's memory that it takes; set by `run` at the latest */
  struct tt_job *next; /* among those under way */
  tt_queue *queue;
  bool ended; /* guarded by the queue's lock */
};

/* `name` is for messages. */
tt_status tt_queue_create(tt_client *client, const char *name, tt_queue **out);
/* Waits for its jobs, and ends its thread. NULL is allowed. */
void tt_queue_destroy(tt_queue *queue);

/* One thread at a time pushes. Blocks while the queue is full, which tt_queue_await_room, called
 * before, makes unlikely and which a thread may be interrupted in. Returns the ticket. */
uint64_t tt_queue_push(tt_queue *queue, tt_job *job);
tt_status tt_queue_await_room(tt_queue *queue);

/* -- Thread-safe -- */
uint64_t tt_queue_last(const tt_queue *queue); /* the ticket pushed last; 0: none */
/* Wait until the job was submitted, or retired. CANCELLED when interrupted (base/interrupt.h). */
tt_status tt_queue_await_submitted(tt_queue *queue, uint64_t ticket);
tt_status tt_queue_await(tt_queue *queue, uint64_t ticket);
bool tt_queue_passed(tt_queue *queue, uint64_t ticket); /* it is retired, as those before it are */
/* Lets go of the jobs that have ended, as the queue's own thread does when it finds the time. The
 * caller has no lock. */
void tt_queue_retire(tt_queue *queue);
/* The jobs that were submitted so far and are not retired: `fn` is called when they are, perhaps at
 * once, from any thread, and must not call the queue. */
tt_status tt_queue_on_drained(tt_queue *queue, void (*fn)(void *user), void *user);

/* On the queue's thread, within a job: waits for the ends of those that it started before, and lets
 * go of them. False: they had all ended. */
bool tt_queue_drain(tt_queue *queue);

/* Whether its thread waits for a compiler: said by jobs. */
void tt_queue_set_compiling(tt_queue *queue, bool compiling);
bool tt_queue_compiling(const tt_queue *queue);

/* The error of a submitted job with this outcome (NULL is allowed), which is the caller's. */
tt_status tt_outcome_take(tt_outcome *outcome);
/* Keeps an error, taken, for the next synchronisation, unless there is one already. */
void tt_queue_remember(tt_queue *queue, tt_status error);
/* The error that is kept, which is the caller's. */
tt_status tt_queue_take_error(tt_queue *queue);
/* What is said of an error that a failed value carries: the kept error, if it tells of the same
 * event, which then counts as told. Takes `error`. */
tt_status tt_queue_tell_error(tt_queue *queue, tt_status error);

#endif
