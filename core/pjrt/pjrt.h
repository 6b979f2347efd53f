/* The pjrt room: any accelerator with a PJRT C API plugin, as C objects and statuses.
 *
 * All functions are thread-safe unless they say otherwise. Plugins are opened once per process and
 * never closed. Every created object is destroyed by its creator before the client is. */
#ifndef TT_PJRT_H
#define TT_PJRT_H

#include "base/board.h"
#include "hlo/types.h"

typedef struct tt_plugin tt_plugin;
typedef struct tt_client tt_client;
typedef struct tt_pjrt_device tt_pjrt_device;
typedef struct tt_executable tt_executable;
/* Opaque plugin objects; only this room looks inside. */
typedef struct PJRT_Buffer tt_buffer;
typedef struct PJRT_Event tt_event;

/* -- plugin.c -- */
/* Opens a PJRT plugin and checks its version. NOT_FOUND: no such file; FAILED_PRECONDITION:
 * another major version, a missing entry point, or a broken table; each says what to do. Unless
 * TORCH_TPU_LOG names `plugin`, XLA's own chatter is turned off (sets TF_CPP_MIN_LOG_LEVEL). */
tt_status tt_plugin_open(const char *path, tt_plugin **out);
void tt_plugin_version(const tt_plugin *plugin, int *major, int *minor);
/* An int64 attribute list such as "stablehlo_current_version"; false if absent. */
bool tt_plugin_attribute(const tt_plugin *plugin, const char *name, int64_t values[3]);
const char *tt_plugin_path(const tt_plugin *plugin);

/* -- client.c -- */
/* The processes that each open a part of what becomes one client of all their devices. Plugins of
 * GPUs are told; those of TPUs find one another by the environment. */
typedef struct tt_world {
  int node, nodes; /* this process, and how many there are */
  int visible;     /* the one of the host's devices that this process opens; -1: all that it sees */
  const tt_board *board; /* of these processes; must outlive the client */
} tt_world;
typedef struct tt_client_options {
  int64_t cpu_devices;   /* virtual devices of the CPU plugin; 0: 1. Other plugins are not told. */
  const tt_world *world; /* NULL: this process is alone */
} tt_client_options;
/* With a world it waits for the other processes. */
tt_status tt_client_create(tt_plugin *plugin, const tt_client_options *options, tt_client **out);
void tt_client_destroy(tt_client *client);
const char *tt_client_platform(const tt_client *client); /* "cpu", "cuda", "tpu" */
const char *tt_client_platform_version(const tt_client *client);
bool tt_client_host_memory(const tt_client *client); /* device memory is host-addressable */
bool tt_client_inline(const tt_client *client);      /* executions end before tt_execute returns */
bool tt_client_copies(const tt_client *client);      /* between its devices by itself */
int tt_client_device_count(const tt_client *client); /* addressable ones */
bool tt_client_spans(const tt_client *client);       /* other processes have devices of it, too */
tt_pjrt_device *tt_client_device(const tt_client *client, int index); /* borrowed */

/* -- device.c -- */
const char *tt_pjrt_device_kind(const tt_pjrt_device *device);
const char *tt_pjrt_device_string(const tt_pjrt_device *device);
int tt_pjrt_device_id(const tt_pjrt_device *device);
/* UNIMPLEMENTED where the plugin keeps no statistics. */
tt_status tt_pjrt_device_memory(const tt_pjrt_device *device, int64_t *in_use, int64_t *limit);

/* -- buffer.c -- */
/* Copies row-major host data in. With `release` the plugin may do so later: `release(user)` is
 * called exactly once, from any thread, when `data` is no longer read, but not on failure. Without,
 * or afterwards, `data` may change. */
tt_status tt_buffer_from_host(tt_pjrt_device *device, const tt_type *type, const void *data,
                              void (*release)(void *user), void *user, tt_buffer **out);
/* Memory for a value, with anything in it. UNIMPLEMENTED: the plugin gives out none. */
tt_status tt_buffer_create(tt_pjrt_device *device, const tt_type *type, tt_buffer **out);
void tt_buffer_destroy(tt_client *client, tt_buffer *buffer); /* NULL is allowed */
/* Waits for the value and copies it, row-major, into `data`; `size` is exactly the type's. */
tt_status tt_buffer_to_host(tt_client *client, tt_buffer *buffer, const tt_type *type, void *data,
                            int64_t size);
/* Starts to copy it, and returns an event, the caller's, for the end of that; NULL where the copy
 * has been made already. `data` must live until then. */
tt_status tt_buffer_to_host_start(tt_client *client, tt_buffer *buffer, const tt_type *type,
                                  void *data, int64_t size, tt_event **end);
/* An event, the caller's, for the value. */
tt_status tt_buffer_ready_event(tt_client *client, tt_buffer *buffer, tt_event **out);
/* Waits for the value. Its error, if the computation failed. */
tt_status tt_buffer_await(tt_client *client, tt_buffer *buffer);
/* Platforms with host memory: the bytes, valid while the buffer lives and is not donated. */
tt_status tt_buffer_pointer(tt_client *client, tt_buffer *buffer, void **out);
/* It was donated, and cannot be used any more; false where the plugin does not say. */
bool tt_buffer_deleted(tt_client *client, tt_buffer *buffer);
tt_status tt_buffer_bytes(tt_client *client, tt_buffer *buffer, int64_t *out); /* on-device size */
tt_status tt_buffer_copy_to_device(tt_client *client, tt_buffer *buffer, tt_pjrt_device *device,
                                   tt_buffer **out);

/* -- event.c -- */
tt_status tt_event_await(tt_client *client, tt_event *event); /* does not destroy it */
/* The same; CANCELLED when interrupted (base/interrupt.h). */
tt_status tt_event_wait(tt_client *client, tt_event *event);
bool tt_event_ready(tt_client *client, tt_event *event);
void tt_event_destroy(tt_client *client, tt_event *event); /* NULL is allowed */
/* Calls `fn` once the event is ready, from a thread of the plugin's or at once, with the event's
 * error (the callee's) or success; `fn` must not destroy buffers or events. The event may be
 * destroyed meanwhile. After a failure `fn` is not called. */
tt_status tt_event_on_ready(tt_client *client, tt_event *event,
                            void (*fn)(void *user, tt_status status), void *user);

/* -- executable.c -- */
typedef struct tt_compile_options {
  int num_replicas, num_partitions; /* 0: 1 */
  bool portable;                    /* one device each call, any device of the client */
  int optimization_level;           /* -1: the plugin's default */
  /* XLA debug options by name ("xla_...") as strings, booleans as "true" and "false"; unknown ones
   * are an error of the plugin. */
  const char *const *override_names, *const *override_values;
  int override_count;
} tt_compile_options;
/* A program's text may begin with options of its own, which override those that it is compiled
 * with, and which are read wherever it is compiled. Each is a line, a comment of MLIR's:
 *
 *   // option NAME bool true|false
 *   // option NAME int DIGITS
 *   // option NAME str ANYTHING
 *
 * So equal texts are equal programs, in memory, in caches, and in files. */
#define TT_OPTION_LINE "// option "
/* A line that names devices, "// devices 0 1 5", makes it a program that these run at once, each a
 * replica, in this order (tt_execute_all). */
#define TT_DEVICES_LINE "// devices "
/* Behind it, "// party 4" tells apart programs that others launch together; no compiler is told. */
#define TT_PARTY_LINE "// party "
/* Compiles a StableHLO module (text or bytecode). */
tt_status tt_compile(tt_client *client, const char *code, size_t size,
                     const tt_compile_options *options, tt_executable **out);
tt_status tt_executable_load(tt_client *client, const void *data, size_t size, tt_executable **out);
/* The caller frees *data with tt_free. */
tt_status tt_executable_serialize(tt_executable *executable, void **data, size_t *size);
void tt_executable_destroy(tt_executable *executable); /* NULL is allowed */
int tt_executable_outputs(const tt_executable *executable);
typedef struct tt_program_memory {
  int64_t arguments, outputs, aliased, temporaries, code;
} tt_program_memory;
tt_status tt_executable_memory(tt_executable *executable, tt_program_memory *out);
/* What the compiler made of it: HLO, as the bytes of an HloModuleProtoWithConfig; the caller
 * deinits *out, also on failure. UNIMPLEMENTED: the plugin does not tell. */
tt_status tt_executable_optimized(tt_executable *executable, tt_text *out);
/* The plugin's own estimate of the bytes that a run moves; -1: it does not tell. UNIMPLEMENTED: it
 * estimates nothing. */
tt_status tt_executable_bytes(tt_executable *executable, double *bytes);
/* The devices that a program of several replicas or partitions runs on here, in its order. `*count`
 * is set to their number, of which at most `capacity` are written to `out` (borrowed). */
tt_status tt_executable_devices(tt_executable *executable, tt_pjrt_device **out, int capacity,
                                int *count);
/* Launches on one device (a portable executable). `keep` lists parameters that must not be
 * donated although the program says so. `outputs` receives tt_executable_outputs new buffers.
 * `done`, when not NULL, receives an event that the caller destroys. */
tt_status tt_execute(tt_executable *executable, tt_pjrt_device *device, tt_buffer *const *arguments,
                     int count, const int64_t *keep, int keep_count, tt_buffer **outputs,
                     tt_event **done);
/* Launches on all of tt_executable_devices at once; arguments[d], outputs[d] and done[d] (`done`
 * may be NULL) are the d-th's. */
tt_status tt_execute_all(tt_executable *executable, int devices, tt_buffer *const *const *arguments,
                         int count, const int64_t *keep, int keep_count, tt_buffer **const *outputs,
                         tt_event **done);

/* -- topology.c -- */
typedef struct tt_topology tt_topology;
/* A named topology such as "v5e:2x4", for compiling without the hardware. */
tt_status tt_topology_create(tt_plugin *plugin, const char *name, tt_topology **out);
void tt_topology_destroy(tt_topology *topology);
int tt_topology_device_count(const tt_topology *topology);
tt_status tt_topology_compile(tt_topology *topology, const char *code, size_t size,
                              const tt_compile_options *options, tt_executable **out);

#endif
