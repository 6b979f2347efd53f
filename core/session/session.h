/* The run room's public header, and so the core's: what the glue calls. */
#ifndef TT_RUN_H
#define TT_RUN_H

#include "ops/ops.h"
#include "pjrt/pjrt.h"
#include "run/call.h"
#include "run/compile.h"
#include "run/forget.h"
#include "run/storage.h"
#include "run/stream.h"
#include "run/template.h"
#include "run/view.h"

/* -- The process's runtime (runtime.c). All functions are thread-safe. -- */
/* Opens the plugin and its devices; later calls return the first one's result. `path` NULL or ""
 * means TORCH_TPU_PLUGIN. */
tt_status tt_runtime_init(const char *path);
bool tt_runtime_ready(void);
tt_client *tt_runtime_client(void); /* NULL before init */
tt_plugin *tt_runtime_plugin(void);
bool tt_runtime_is_cpu(void); /* XLA's CPU plugin, whose compiler some programs are shaped for */
bool tt_runtime_has_lapack(void);        /* programs may call LAPACK's routines */
int tt_runtime_device_count(void);       /* 0 before init */
tt_stream *tt_runtime_stream(int index); /* NULL when out of range */
/* Waits for all streams; joins their errors. */
tt_status tt_runtime_sync(void);

/* Ends the runtime: waits for the streams, ends all threads, frees calls and programs, closes the
 * client. All storages must be gone, and no other thread may use the core meanwhile; afterwards
 * tt_runtime_init starts anew. For tests that look for leaks: a process may end without it. */
void tt_runtime_shutdown(void);

/* Before the process exits: drops what was recorded and not launched, and waits for what runs, so
 * that no thread is in the plugin when that is torn down. Thread-safe. */
void tt_runtime_end(void);

tt_mode tt_runtime_mode(void);
tt_status tt_runtime_set_mode(tt_mode mode); /* VALUE for a mode that does not exist */

/* Under deterministic algorithms no result may depend on when a compilation ends. */
bool tt_runtime_deterministic(void);
void tt_runtime_set_deterministic(bool value);

/* -- Call sites: small numbers for Python lines -- */
/* The line's number, the same each time; text is copied. 0: unknown, or one too many (65,536). */
uint32_t tt_site_add(const char *file, int line, const char *function);
const char *tt_site_text(uint32_t site); /* "file.py:12 in f", or "" */
uint32_t tt_site_count(void);            /* sites are below this number */

/* -- Counters (metrics.c) -- */
#define TT_COUNTERS(X)                                                                             \
  X(OPS_ROW, "operators run by a table row")                                                       \
  X(OPS_DECOMPOSED, "operators run by a decomposition")                                            \
  X(OPS_HOST, "operators run on the host")                                                         \
  X(CALLS_NEW, "calls specialised")                                                                \
  X(FORGOTTEN, "times that the tables of calls were full and emptied")                             \
  X(PROGRAMS, "programs new to the process")                                                       \
  X(PROGRAM_HITS, "programs found in memory")                                                      \
  X(COMPILES, "programs compiled, because no cache had them")                                      \
  X(DISK_HITS, "programs found in the cache folder")                                               \
  X(DISK_SHARED_HITS, "programs found in the shared cache folder")                                 \
  X(DISK_BAD, "broken cache entries removed")                                                      \
  X(DISK_WRITES, "cache entries written")                                                          \
  X(DISK_WAITS, "waits for another process that compiled the same program")                        \
  X(COMPILE_NS, "nanoseconds spent compiling, summed over threads")                                \
  X(LOAD_NS, "nanoseconds spent loading programs that were found in a folder")                     \
  X(PROGRAMS_LAUNCHED, "programs launched at least once")                                          \
  X(UNLOADED, "programs unloaded, because there were many or memory mappings ran short")           \
  X(CHUNKS, "chunks of operators ended")                                                           \
  X(CHUNK_OPS, "operators in them")                                                                \
  X(CUTS_CONTENT, "chunks that ended by their content")                                            \
  X(CUTS_LENGTH, "chunks that ended by their length")                                              \
  X(CUTS_BYTES, "chunks that ended by their results' bytes")                                       \
  X(CUTS_READ, "chunks that a read by the host ended")                                             \
  X(CUTS_SYNCHRONISE, "chunks that a synchronisation ended")                                       \
  X(CUTS_MODE, "chunks that another eager mode ended")                                             \
  X(JOINED, "chunks that were launched as parts of longer ones")                                   \
  X(REPLAYS, "chunks run operator by operator, because they or an input had failed")               \
  X(LAUNCHES, "programs launched")                                                                 \
  X(SYNCS, "synchronisations")                                                                     \
  X(READS, "values read by the host")                                                              \
  X(WRITES, "values written by the host")
typedef enum tt_counter {
#define X(name, doc) TT_COUNT_##name,
  TT_COUNTERS(X)
#undef X
      TT_COUNT_LIMIT
} tt_counter;
void tt_count_add(tt_counter counter, int64_t amount);
int64_t tt_count_get(tt_counter counter);
const char *tt_count_name(tt_counter counter); /* "programs" */
/* A chunk of so many operators has ended; how many ended with 2^i to 2^(i+1) - 1 of them. */
enum { TT_CHUNK_SIZES = 16 };
void tt_count_chunk(int operators);
int64_t tt_count_chunks(int i);
/* The host waited for the device at this site; how often it did. */
void tt_count_wait(uint32_t site);
int64_t tt_count_waits(uint32_t site);
void tt_count_reset(void);

#endif
