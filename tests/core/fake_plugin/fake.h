/* A PJRT plugin with no hardware behind it, for tests.
 *
 * Device memory is mapped without access, so that host code that touches it faults; programs are
 * only scanned for the signature of @main, and their results are zeros. One that contains the word
 * "unserializable" is.
 * Environment, read when a client is created: TT_FAKE_DEVICES (default 1), TT_FAKE_MEMORY (bytes
 * per device, default 1 GiB), TT_FAKE_PLATFORM (default fake); read by GetPjrtApi: TT_FAKE_BREAK
 * (null, tiny, short, major, or slot: what is wrong with the table it returns; old: a usable table
 * without anything optional).
 *
 * The functions below are exported; get them with dlsym. Thread-safe. */
#ifndef TT_FAKE_H
#define TT_FAKE_H

#include <stdbool.h>
#include <stdint.h>

/* Makes the Nth call from now (1 = the next) fail with INTERNAL "injected failure N"; a destroying
 * call still destroys. 0 turns it off. */
void tt_fake_fail_at(int64_t nth);
/* Whether the failure that was last asked for has happened. */
bool tt_fake_failed(void);
/* Lets the Nth execution from now succeed at launch and fail when its results are awaited. */
void tt_fake_fail_launch(int64_t nth);
/* Lets every program fail whose text contains `word` (static) at least so many times: when it is
 * compiled, when it is executed, or when it is executed and has taken the donated arguments. */
enum { TT_FAKE_NEVER, TT_FAKE_COMPILE, TT_FAKE_EXECUTE, TT_FAKE_EXECUTE_DONATED };
void tt_fake_fail_programs(const char *word, int times, int when);
/* Compiling a program whose text contains `word` (static) does not end until this is called with
 * another word, or NULL; and how many compilations wait so. */
void tt_fake_hold_programs(const char *word);
int tt_fake_held(void);
/* Asynchronous mode: results, copies and executions become ready about 0.2 ms late, in order. */
void tt_fake_async(bool on);
/* While on, nothing that is asynchronous becomes ready. And: what began last is ready first. */
void tt_fake_hold(bool on);
void tt_fake_backwards(bool on);
/* Buffers, executables, events, topologies, and errors that were not destroyed yet. */
int64_t tt_fake_live_objects(void);
/* Calls of the table, and of Execute alone, since the plugin was loaded. */
int64_t tt_fake_calls(void);
int64_t tt_fake_launches(void);
/* Arguments of executions that were donated. */
int64_t tt_fake_donations(void);

#endif
