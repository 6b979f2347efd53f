/* What the process counts: relaxed atomics, so that counting costs nothing worth counting.
 * All functions are thread-safe. */
#ifndef TT_COUNTERS_H
#define TT_COUNTERS_H

#include <stdint.h>

#define TT_COUNTERS(X)                                                                             \
  X(OPS_ROW, "operators run by a table row")                                                       \
  X(OPS_DECOMPOSED, "operators run by a decomposition")                                            \
  X(OPS_HOST, "operators run on the host")                                                         \
  X(OPS_BOUNDED, "operators that saw values with room for more")                                   \
  X(SETTLED, "values with room for more that were made exact ones")                                \
  X(CALLS_NEW, "calls specialised")                                                                \
  X(RECLAIMS, "times that the tables of calls were full and emptied")                              \
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
  X(UNLOADED, "programs unloaded: what they were captured for is gone, or others need the room")   \
  X(CHUNKS, "chunks of operators ended")                                                           \
  X(CHUNK_OPS, "operators in them")                                                                \
  X(CUTS_CONTENT, "chunks that ended by their content")                                            \
  X(CUTS_LENGTH, "chunks that ended by their length")                                              \
  X(CUTS_BYTES, "chunks that ended by their results' bytes")                                       \
  X(CUTS_READ, "chunks that a read by the host ended")                                             \
  X(CUTS_SYNCHRONISE, "chunks that a synchronisation ended")                                       \
  X(CUTS_MODE, "chunks that another eager mode ended")                                             \
  X(TIER_OPERATORS, "operators of chunks that were launched alone")                                \
  X(TIER_PIECES, "operators that were launched in pieces of chunks")                               \
  X(TIER_KERNELS, "operators that were launched in pieces, as orders to the host's kernels")       \
  X(TIER_CHUNKS, "operators that were launched in whole chunks")                                   \
  X(FUSED, "chunks that were launched as parts of longer ones")                                    \
  X(REPLAYS, "chunks run operator by operator, because they or an input had failed")               \
  X(LAUNCHES, "programs launched")                                                                 \
  X(SYNCS, "synchronisations")                                                                     \
  X(READS, "values read by the host")                                                              \
  X(WRITES, "values written by the host")                                                          \
  X(TRANSFERS, "values copied from one device to another by the plugin")                           \
  X(CAPTURES, "graphs captured")                                                                   \
  X(GRAPH_REPLAYS, "replays of captured graphs")
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
