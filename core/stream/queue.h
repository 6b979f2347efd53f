/* What the files of the stream share: stream.c, wait.c, record.c, host.c, memory.c. */
#ifndef TT_STREAM_INTERNAL_H
#define TT_STREAM_INTERNAL_H

#include "run/chunk.h"
#include "run/launch.h"
#include "run/stream.h"
#include "run/value.h"

#include <pthread.h>

enum { TT_QUEUE = 1024, TT_FLIGHTS = 256, TT_SPINS = 4000 };

/* An asynchronous launch that may not have ended. */
typedef struct tt_flight {
  tt_event *end;
  uint64_t ticket;
  tt_origin origin;
} tt_flight;

struct tt_stream {
  tt_device *device;
  int index;
  pthread_mutex_t record_lock; /* guards storages, the open chunk, and the queue's head */
  tt_chunk chunk;
  tt_launch *queue[TT_QUEUE];
  _Atomic uint64_t head, tail; /* launches recorded, launches ended */
  pthread_mutex_t sleep_lock;
  pthread_cond_t work, progress;
  atomic_bool launcher_sleeps, launcher_compiles; /* the latter: it waits for a compiler */
  _Atomic uint64_t wake_at; /* the lowest tail that somebody sleeps for; UINT64_MAX: nobody */
  tt_status error;          /* first since the last synchronisation; guarded by sleep_lock */
  pthread_mutex_t flight_lock;
  tt_flight flights[TT_FLIGHTS]; /* in launch order; guarded by flight_lock, as the next two */
  uint64_t departed, landed;
  pthread_t thread;
  tt_word_cache *words; /* used by the launch thread alone */
  tt_intern zeros;      /* interned types to values full of zeros; guarded by record_lock */
  _Atomic int64_t allocated, peak, total, allocations, frees;
  pthread_mutex_t value_lock;
  tt_value *values; /* the larger ready ones; guarded by value_lock, as their links */
};

static inline void tt_cpu_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/* -- wait.c -- */
/* Keeps an error for the next synchronisation; takes it. */
void tt_stream_remember(tt_stream *stream, tt_status error);
/* An asynchronous launch was started. */
void tt_stream_depart(tt_stream *stream, tt_flight started);
/* Waits until the launch was started, whether or not it has ended. */
void tt_stream_await(tt_stream *stream, uint64_t ticket);
/* The host waits here, whether for what is recorded last or for something older: which of the two
 * it is may change when chunks end elsewhere. record_lock is held. */
void tt_stream_note_wait(tt_stream *stream);

/* -- stream.c -- */
/* Blocks while the queue is full. record_lock is held. */
void tt_stream_push(tt_stream *stream, tt_launch *launch);
/* Ends the open chunk and sends it off; fails when it stays open, for want of a program that must
 * not be compiled. record_lock is held. */
tt_status tt_stream_flush(tt_stream *stream, tt_cut why);

/* -- record.c -- */
/* Forgets the zeros that are kept. */
void tt_stream_release_zeros(tt_stream *stream);

#endif
