/* What the files of the plugin share. "The lock" is the one of clock.c; what belongs to it says
 * so. `inner` is always an object of the plugin that computes. */
#ifndef TT_ACCEL_INTERNAL_H
#define TT_ACCEL_INTERNAL_H

#include "accel.h"
#include "hlo/types.h"
#include "pjrt/pjrt_abi.h"

#include <pthread.h>
#include <stdatomic.h>

/* -- error.c: memory and errors -- */
struct PJRT_Error {
  int code;
  char text[];
};

void *accel_alloc(size_t count, size_t size); /* zeroed; ends the process when memory is out */
extern atomic_int_fast64_t accel_live;
PJRT_Error *accel_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
PJRT_Error *accel_error_copy(const PJRT_Error *error); /* of NULL: NULL */
void accel_error_free(PJRT_Error *error);              /* NULL is allowed */
/* One of the inner plugin's (consumed; NULL stays NULL) as one of ours. */
PJRT_Error *accel_error_of_inner(PJRT_Error *inner);

/* -- plugin.c: the table and the plugin inside -- */
extern const PJRT_Api *accel_inner; /* set by Plugin_Initialize */

/* Declares zeroed arguments with their struct_size. */
#define ACCEL_ARGS(slot, variable, ...)                                                            \
  PJRT_##slot##_Args variable = {.struct_size = PJRT_##slot##_Args_STRUCT_SIZE, __VA_ARGS__}
/* Calls a slot of the inner plugin. */
#define ACCEL_INNER(slot, args) accel_error_of_inner(accel_inner->PJRT_##slot(args))
/* Calls a destroying slot of the inner plugin. */
#define ACCEL_INNER_DESTROY(slot, ...)                                                             \
  do {                                                                                             \
    ACCEL_ARGS(slot, destroy_args, __VA_ARGS__);                                                   \
    accel_error_free(ACCEL_INNER(slot, &destroy_args));                                            \
  } while (0)
/* Begins the definition of a slot of ours. */
#define ACCEL(slot)                                                                                \
  PJRT_Error *accel_##slot(PJRT_##slot##_Args *args);                                              \
  PJRT_Error *accel_##slot(PJRT_##slot##_Args *args)
/* What every slot's body begins with. */
#define ACCEL_ENTER(slot)                                                                          \
  if (args->struct_size < PJRT_##slot##_Args_STRUCT_SIZE)                                          \
  return accel_error(TT_INVALID_ARGUMENT, "%s: struct_size %zu, expected %zu", #slot,              \
                     args->struct_size, (size_t)PJRT_##slot##_Args_STRUCT_SIZE)

/* -- faults.c: counts and failures -- */
typedef enum accel_act {
  ACCEL_EXECUTE,
  ACCEL_H2D,
  ACCEL_D2H,
  ACCEL_D2D,
  ACCEL_COMPILE,
  ACCEL_ALLOC,
  ACCEL_ACTS,
  ACCEL_LANES = ACCEL_COMPILE /* those before it are done by threads */
} accel_act;

void accel_did(accel_act act);
/* The error that this act shall have, or NULL; ask once an act, for each of the two ways. */
PJRT_Error *accel_fault(accel_act act, bool later);

/* -- clock.c: the lock, the time, the seed -- */
void accel_lock(void);
void accel_unlock(void);
/* Under the lock, which it leaves meanwhile: sleeps until accel_wake, at most until `due`
 * (nanoseconds of accel_now; 0: no limit). */
void accel_sleep(int64_t due);
void accel_wake(void); /* under the lock */
int64_t accel_now(void);
void accel_seed(uint64_t seed, int64_t delay_us);
double accel_random(void); /* the next of the sequence, in [0, 1) */
int64_t accel_delay(void); /* the next one, in nanoseconds */

/* -- event.c: what becomes ready, and the handles of it -- */
typedef struct accel_moment {
  int refs; /* under the lock, as are the others */
  bool over;
  PJRT_Error *error; /* once over */
  struct accel_callback *callbacks;
} accel_moment;

struct PJRT_Event {
  accel_moment *moment;
};

accel_moment *accel_moment_create(void);
accel_moment *accel_moment_retain(accel_moment *moment); /* under the lock */
void accel_moment_release(accel_moment *moment);         /* under the lock */
/* Without the lock: it is over, with this error (consumed) or none. */
void accel_moment_end(accel_moment *moment, PJRT_Error *error);
PJRT_Event *accel_event_create(accel_moment *moment); /* under the lock; retains it */

/* -- lane.c: work in turn or out of turn, on a thread for each lane -- */
typedef struct accel_task {
  bool (*ready)(const struct accel_task *task); /* under the lock: what it needs is there */
  void (*run)(struct accel_task *task);         /* without the lock; the struct is freed later */
  int64_t delay;
  int members; /* lanes that it occupies at once */
  /* The lanes' own, under the lock. */
  int arrived, nodes;
  bool taken, over;
} accel_task;

typedef struct accel_lane {
  bool ordered, stop;
  struct accel_node *first, **last; /* under the lock */
  pthread_t thread;
  bool started;
} accel_lane;

PJRT_Error *accel_lane_init(accel_lane *lane, bool ordered);
void accel_lane_deinit(accel_lane *lane); /* after all that it was given */
/* Under the lock. A task (consumed, from accel_alloc) of several members goes to each of `lanes`;
 * under one hold of the lock, so that all lanes have such tasks in one order. */
void accel_lane_add(accel_lane *const *lanes, int members, accel_task *task);

/* -- client.c -- */
struct PJRT_DeviceDescription {
  int id;
  char string[40];
};

struct PJRT_Device {
  PJRT_DeviceDescription description;
  PJRT_Client *client;
  PJRT_Device *inner;
  accel_lane lanes[ACCEL_LANES];
  /* Under the lock. */
  int64_t in_use, limit, peak, allocations, largest;
};

/* Of processes that each have one of the inner client's devices; see span.c. */
enum { ACCEL_SPAN_SETS = 256 };
typedef struct accel_span {
  int64_t node, nodes; /* nodes 1: this process has all devices */
  int timeout_ms;      /* how long the others are waited for */
  PJRT_KeyValueGetCallback get;
  PJRT_KeyValueTryGetCallback try_get;
  PJRT_KeyValuePutCallback put;
  void *get_user, *try_get_user, *put_user;
  /* Under the lock: sets of devices that have run programs together, and how many. */
  int set_count;
  uint64_t sets[ACCEL_SPAN_SETS];
  int64_t launches[ACCEL_SPAN_SETS];
} accel_span;

struct PJRT_Client {
  PJRT_Client *inner;
  PJRT_Device **devices;
  size_t device_count, all_devices;
  accel_span span;
  char version[256];
  atomic_int_fast64_t holders; /* values and executables, which must go first */
};

/* -- memory.c: values in a device's memory. All under the lock. -- */
typedef struct accel_value {
  int refs;
  PJRT_Device *device;
  PJRT_Buffer *inner; /* NULL until it is ready, and when that failed */
  tt_type type;
  int64_t bytes; /* on the device; 0 once its memory was given to the result of an execution */
  accel_moment *ready;
  int readers; /* copies from it that have not ended */
} accel_value;

/* The bytes of its row-major form; -1 for a malformed type. */
int64_t accel_dense_bytes(const tt_type *type);
int64_t accel_device_bytes(const tt_type *type); /* what it takes on a device */
/* RESOURCE_EXHAUSTED when the limit is reached. */
PJRT_Error *accel_memory_take(PJRT_Device *device, int64_t bytes);
void accel_memory_give(PJRT_Device *device, int64_t bytes);
/* A value whose memory was taken; retains `ready`. */
accel_value *accel_value_create(PJRT_Device *device, const tt_type *type, accel_moment *ready);
accel_value *accel_value_retain(accel_value *value);
void accel_value_release(accel_value *value); /* NULL is allowed */

/* -- buffer.c: the handles of values -- */
struct PJRT_Buffer {
  accel_value *value; /* under the lock; NULL once it was donated */
};

PJRT_Buffer *accel_buffer_create(accel_value *value); /* consumes the reference */
PJRT_Error *accel_buffer_check(const PJRT_Buffer *buffer);

/* -- program.c: what the plugin must know of a program before it runs -- */
typedef struct accel_program {
  int refs; /* under the lock */
  int arguments, outputs;
  bool *donates; /* for each argument */
  tt_type *types;
} accel_program;

/* Reads the text of a module. UNIMPLEMENTED for bytecode and for calls of functions outside. */
PJRT_Error *accel_program_parse(const char *code, size_t size, accel_program **out);
/* Adds the types of the outputs. */
PJRT_Error *accel_program_complete(accel_program *program, PJRT_Executable *inner);
void accel_program_release(accel_program *program); /* under the lock; NULL is allowed */
/* INVALID_ARGUMENT when CompileOptionsProto names an option of the CPU compiler. */
PJRT_Error *accel_options_check(const char *options, size_t size);

/* -- executable.c -- */
struct PJRT_Executable {
  PJRT_Executable *inner;
  accel_program *program;
};

struct PJRT_LoadedExecutable {
  int refs; /* under the lock: the handle's and the launches' */
  PJRT_LoadedExecutable *inner;
  PJRT_Client *client;
  accel_program *program;
  PJRT_Device **devices; /* of one that is not portable */
  size_t device_count;
  /* Of one that several processes run, else 0: the inner devices, of which number `place` is this
   * process's, and the same as a set of bits. */
  PJRT_Device **places;
  size_t place_count, place;
  uint64_t set;
};

void accel_loaded_release(PJRT_LoadedExecutable *executable); /* under the lock */

/* -- span.c -- */
PJRT_Error *accel_span_read(const PJRT_Client_Create_Args *args, accel_span *span);
/* Waits for the other processes. */
PJRT_Error *accel_span_meet(const accel_span *span);
/* The number of a launch that begins, among those by its devices; -1: too many. Under the lock. */
int64_t accel_span_number(PJRT_LoadedExecutable *executable);
/* Tells the other processes this one's arguments, and makes theirs on the inner devices, in the
 * order of the places, `count` each; those of this one's place are left as they are. */
PJRT_Error *accel_span_arguments(const PJRT_LoadedExecutable *executable, int64_t number,
                                 accel_value *const *own, int count, PJRT_Buffer **out);

#endif
