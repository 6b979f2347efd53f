/* What the tests of the trunk share: a session, the fake plugin's controls, checks of statuses, and
 * calls recorded by hand. */
#ifndef TT_SUPPORT_H
#define TT_SUPPORT_H

#include "session/session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checks.h"
#include "fake_plugin/fake.h"

#define DIMS(...) ((int64_t[]){__VA_ARGS__})

/* -- The fake plugin (TT_FAKE_PLUGIN) -- */
#define FAKE_CONTROLS(X)                                                                           \
  X(void, tt_fake_fail_at, (int64_t))                                                              \
  X(bool, tt_fake_failed, (void))                                                                  \
  X(void, tt_fake_fail_launch, (int64_t))                                                          \
  X(void, tt_fake_fail_programs, (const char *, int, int))                                         \
  X(void, tt_fake_hold_programs, (const char *))                                                   \
  X(int, tt_fake_held, (void))                                                                     \
  X(void, tt_fake_async, (bool))                                                                   \
  X(void, tt_fake_hold, (bool))                                                                    \
  X(void, tt_fake_backwards, (bool))                                                               \
  X(int64_t, tt_fake_live_objects, (void))                                                         \
  X(int64_t, tt_fake_calls, (void))                                                                \
  X(int64_t, tt_fake_launches, (void))                                                             \
  X(int64_t, tt_fake_donations, (void))

typedef struct fake_controls {
#define X(type, name, arguments) type(*name) arguments;
  FAKE_CONTROLS(X)
#undef X
} fake_controls;
extern fake_controls fake;

/* Loads the controls and turns the disk cache off; false when there is no fake plugin. */
bool fake_open(void);
/* No failures, synchronous. */
void fake_reset(void);
/* A fixture: closes the session; an error if anything of the plugin's is left. */
int fake_close(void **state);

/* -- The session -- */
extern tt_session *session; /* NULL: none is open */
extern tt_policy policy;    /* of the test, for what it records and waits for */

tt_status session_open(const char *path); /* does nothing when one is open */
void session_close(void);
/* The default stream of a device; NULL: there is none. */
tt_stream *stream_at(int device);
void memory_of(const tt_stream *stream, tt_memory *out);

/* -- Waiting, under the test's policy -- */
tt_status stream_sync(tt_stream *stream);
tt_status session_sync(void);
uint64_t stream_ticket(tt_stream *stream);
/* Waits until everything up to the ticket is retired. */
void stream_wait(tt_stream *stream, uint64_t ticket);
bool stream_passed(tt_stream *stream, uint64_t ticket);
bool stream_idle(tt_stream *stream);

/* -- Storages -- */
tt_type type_of(tt_dtype dtype, int rank, const int64_t *dims);
/* An undefined storage. */
tt_storage *storage_new(tt_stream *stream, tt_type type);
/* A storage of these row-major values. */
tt_storage *storage_of(tt_stream *stream, tt_type type, const void *data);
tt_status storage_write(tt_storage *storage, const tt_type *type, const void *data, uint32_t site);
tt_status storage_read(tt_storage *storage, void *data, int64_t size);
/* On the default stream of its device. */
tt_status storage_resize(tt_storage *storage, int64_t bytes);

/* -- Calls -- */
enum { REQUEST_MAX = 8 };

typedef struct request {
  const tt_op_row *row;
  int tensor_count;
  tt_storage *tensors[REQUEST_MAX];
  const tt_view *views[REQUEST_MAX]; /* NULL: the whole storage */
  int arg_count;                     /* 0: one argument for each tensor */
  tt_arg args[REQUEST_MAX];
  int scalar_count;
  tt_dtype scalars[REQUEST_MAX];
  uint32_t words[2 * REQUEST_MAX];
  int target_count; /* 0: one new result of type `result`, or of tensor 0's if that is not set */
  int targets[REQUEST_MAX];
  tt_type result;
  bool no_meta; /* results are what the lowering says, at most REQUEST_MAX */
  uint32_t site;
  tt_draw draw; /* of a random row, whose last words are the place */
} request;

/* The interned call for a request. */
tt_status request_call(const request *r, tt_call **out);
/* Records that call of it; `results` has REQUEST_MAX entries. */
tt_status call_record(tt_stream *stream, tt_call *call, const request *r, tt_storage **results);
/* Both in one. */
tt_status request_record(tt_stream *stream, const request *r, tt_storage **results);

/* add.Tensor(a, b) into a new storage. */
tt_status record_add(tt_stream *stream, tt_storage *a, tt_storage *b, tt_storage **out);
/* a.add_(b), through views where given. */
tt_status record_add_into(tt_stream *stream, tt_storage *a, const tt_view *a_view, tt_storage *b,
                          const tt_view *b_view);
/* mul.Tensor(a, number), the number known at run time only (F32). */
request scale_request(tt_storage *a, float number);
/* The same, recorded. */
tt_status record_scale(tt_stream *stream, tt_storage *a, float number, tt_storage **out);

/* -- Random cases -- */

/* Begins the sequence of TT_SEED, or of this number, and prints which. */
void random_seed(uint64_t seed);
uint64_t random_bits(void);
int64_t below(int64_t n);
/* How many cases: TT_CASES, or as many as are usual. */
int case_count(int usual);

#endif
