/* What the files of this room share; nobody else includes it. */
#ifndef TT_PJRT_INTERNAL_H
#define TT_PJRT_INTERNAL_H

#include "pjrt/pjrt.h"
#include "pjrt/pjrt_abi.h"

struct tt_plugin {
  const PJRT_Api *api;
  char *path;
  const PJRT_NamedValue *attributes; /* the plugin's, for ever */
  size_t attribute_count;
  struct tt_plugin *next; /* of all that were opened */
};

struct tt_pjrt_device {
  tt_client *client;
  PJRT_Device *raw;
  int id;
  char *kind, *string;
};

struct tt_client {
  const PJRT_Api *api;
  PJRT_Client *raw;
  char *platform, *platform_version;
  bool host_memory, runs_inline;
  const tt_board *board; /* of the processes that have a part of it each; NULL: none was given */
  int device_count, all_devices;
  tt_pjrt_device *devices;
};

/* A result of Client_Compile or DeserializeAndLoad has both handles, one of a topology only
 * `compiled`. */
struct tt_executable {
  const PJRT_Api *api;
  tt_client *client;
  PJRT_LoadedExecutable *loaded;
  PJRT_Executable *compiled;
  int outputs;
};

/* Declares zeroed arguments with their struct_size: TT_ARGS(Event_Await, args, .event = event); */
#define TT_ARGS(slot, variable, ...)                                                               \
  PJRT_##slot##_Args variable = {.struct_size = PJRT_##slot##_Args_STRUCT_SIZE, __VA_ARGS__}

/* Whether the plugin has a MAYBE slot: its table may be shorter than ours. */
#define TT_HAS(api, slot)                                                                          \
  (offsetof(PJRT_Api, PJRT_##slot) + sizeof(void *) <= (api)->struct_size && (api)->PJRT_##slot)

/* Calls a slot; the plugin's error becomes a status. */
#define TT_CALL(api, slot, args) tt_pjrt_status((api), (api)->PJRT_##slot(args), #slot)

/* The same for a destroying slot, whose error can only be logged. */
#define TT_DESTROY(api, slot, args) tt_pjrt_drop((api), (api)->PJRT_##slot(args), #slot)

/* Turns an error (consumed) into a status with its code; NULL is success. */
tt_status tt_pjrt_error_status(const PJRT_Api *api, PJRT_Error *error, const char *slot);
void tt_pjrt_drop(const PJRT_Api *api, PJRT_Error *error, const char *slot);

static inline tt_status tt_pjrt_status(const PJRT_Api *api, PJRT_Error *error, const char *slot) {
  return error ? tt_pjrt_error_status(api, error, slot) : TT_SUCCESS;
}

tt_status tt_pjrt_missing(const char *slot); /* UNIMPLEMENTED: the plugin lacks a MAYBE slot */

/* The table's extension of this type, which may be shorter than ours; NULL if it has none. */
const PJRT_Extension_Base *tt_pjrt_extension(const PJRT_Api *api, int type);

/* Events need only the table. */
tt_status tt_pjrt_await(const PJRT_Api *api, PJRT_Event *event);
void tt_pjrt_event_destroy(const PJRT_Api *api, PJRT_Event *event);

/* Hands the board, which must outlive the client, to a client that is about to be made. */
void tt_pjrt_offer_board(const tt_board *board, PJRT_Client_Create_Args *args);

/* Fills the id and the strings of a device whose `client` and `raw` are set. */
tt_status tt_pjrt_device_init(tt_pjrt_device *device);
void tt_pjrt_device_deinit(tt_pjrt_device *device);

/* Wraps handles (consumed, also on failure) and asks for what tt_executable caches. */
tt_status tt_executable_wrap(const PJRT_Api *api, tt_client *client, PJRT_LoadedExecutable *loaded,
                             PJRT_Executable *compiled, tt_executable **out);
/* The program and the options as a plugin wants them. `program` borrows `code`; `options_out` is
 * the caller's to deinit, also on failure. INVALID_ARGUMENT: what no plugin should be bothered
 * with. */
tt_status tt_pjrt_program(const char *code, size_t size, const tt_compile_options *options,
                          PJRT_Program *program, tt_text *options_out);

#endif
