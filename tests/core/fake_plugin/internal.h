#ifndef TT_FAKE_INTERNAL_H
#define TT_FAKE_INTERNAL_H

#include "fake.h"
#include "hlo/types.h"
#include "pjrt/pjrt_abi.h"

#include <stdatomic.h>

/* What an event waits for; shared by all that become ready together. Under the lock. */
typedef struct fake_moment {
  int refs;
  bool ready;
  const char *failure; /* static text, NULL if none; known from the start */
  struct fake_callback *callbacks;
  struct fake_moment *next; /* in the queue of those to come */
} fake_moment;

struct PJRT_Error {
  int code;
  char text[];
};

struct PJRT_Event {
  fake_moment *moment;
};

struct PJRT_DeviceDescription {
  int id;
  char string[40];
};

struct PJRT_Device {
  PJRT_DeviceDescription description;
  int64_t bytes_in_use, bytes_limit; /* under the lock */
};

struct PJRT_Client {
  char platform[16];
  PJRT_Device **devices;
  size_t device_count;
};

struct PJRT_TopologyDescription {
  PJRT_DeviceDescription **devices;
  size_t device_count;
};

typedef struct fake_type {
  int dtype, rank;
  int64_t dims[TT_MAX_RANK], bytes;
  int donates_to; /* an argument's aliased result, or -1 */
} fake_type;

struct PJRT_Buffer {
  fake_type type;
  PJRT_Device *device;
  void *memory; /* NULL once deleted or donated */
  size_t mapped;
  fake_moment *moment;
};

typedef struct fake_program {
  int refs;
  char *text;
  size_t size;
  fake_type *arguments, *results;
  int argument_count, result_count;
} fake_program;

struct PJRT_Executable {
  fake_program *program;
};

struct PJRT_LoadedExecutable {
  fake_program *program;
};

/* fake.c */
void *fake_alloc(size_t size); /* zeroed; ends the process when memory is out */
PJRT_Error *fake_error(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What every call begins with: counts, checks the struct_size, injects. */
PJRT_Error *fake_enter(size_t size, size_t needed, const char *slot);
void fake_lock(void);
void fake_unlock(void);
extern atomic_int_fast64_t fake_live;

#define FAKE(slot)                                                                                 \
  PJRT_Error *fake_##slot(PJRT_##slot##_Args *args);                                               \
  PJRT_Error *fake_##slot(PJRT_##slot##_Args *args)
#define FAKE_ENTER(slot)                                                                           \
  PJRT_Error *enter_error = fake_enter(args->struct_size, PJRT_##slot##_Args_STRUCT_SIZE, #slot);  \
  if (enter_error) return enter_error

/* event.c; all under the lock */
fake_moment *fake_moment_create(const char *failure); /* ready at once unless asynchronous */
void fake_moment_release(fake_moment *moment);
PJRT_Event *fake_event_create(fake_moment *moment); /* adds a reference */

/* buffer.c; under the lock */
PJRT_Error *fake_buffer_create(PJRT_Device *device, const fake_type *type, fake_moment *moment,
                               PJRT_Buffer **out);
void fake_buffer_free_memory(PJRT_Buffer *buffer);
bool fake_type_finish(fake_type *type); /* computes the bytes; false if the type is unknown */

/* program.c: @main's signature from the text of a module */
PJRT_Error *fake_program_parse(const char *text, size_t size, fake_program **out);
void fake_program_release(fake_program *program);

#endif
