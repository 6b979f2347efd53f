/* The core's public header, and the session: what a process has open. A test creates and destroys
 * one; a process has one. */
#ifndef TT_SESSION_H
#define TT_SESSION_H

#include "stream/capture.h"
#include "stream/host.h"
#include "stream/marker.h"
#include "stream/nested.h"
#include "stream/template.h"
#include "stream/templates.h"

enum { TT_SESSION_DEVICES = 127 }; /* PyTorch counts them in an int8 */

typedef struct tt_session {
  tt_plugin *plugin;
  tt_client *client;
  tt_target target;
  tt_program_table *programs; /* of that target */
  tt_call_table *calls;
  tt_templates *templates; /* of these calls */
  int device_count;
  tt_device *devices[TT_SESSION_DEVICES];
} tt_session;

/* Opens the plugin and its devices. `path` NULL or "" means TORCH_TPU_PLUGIN. The session that was
 * opened last reclaims what has grown too large, if no other is open. options: NULL, or of the
 * client; without a number of CPU devices it is TORCH_TPU_CPU_DEVICES. */
tt_status tt_session_create(const char *path, const tt_client_options *options, tt_session **out);
/* Waits for the streams, ends all threads, frees calls and programs, closes the client. All
 * storages and captured graphs must be gone, and nobody may use the session any more. NULL is
 * allowed. */
void tt_session_destroy(tt_session *session);
/* Before the process exits: drops what is captured, or was recorded and not launched, and waits
 * half a second for what runs, so that no thread is in the plugin when that is torn down; should
 * one be, exit ends the process at once. An error of which nobody was told is written to stderr,
 * and then a process that would end with status 0 ends with 1. */
void tt_session_end(tt_session *session);
/* Waits for all streams; joins their errors. Thread-safe; CANCELLED when interrupted. */
tt_status tt_session_sync(tt_session *session, const tt_policy *policy);

#endif
