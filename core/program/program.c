#include "program/program.h"

#include "program/mappings.h"
#include "program/pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_TEXT ((int64_t)1 << 28) /* bytes of StableHLO of loaded programs */
/* Mappings are counted when programs of so many bytes were loaded, each counted for no less; later
 * where there is room: a mapping is taken for more bytes of text than that. */
enum { LOOK_EVERY = 1 << 16, LEAST_LOAD = 1 << 12, BYTES_OF_MAPPING = 16 };
enum { DROPPED = 1 << 30 }; /* among a program's users: the last of them unloads it */

struct tt_program_table {
  const tt_target *target;
  tt_compiler *compiler;
  pthread_mutex_t lock; /* guards what follows, up to `ending` */
  pthread_cond_t ended; /* a compilation has */
  tt_intern programs;   /* by their texts, which they lend */
  tt_pool *pool;
  int64_t loaded_count, loaded_bytes; /* of programs that are ready, and of their text */
  int64_t unseen, look_after;         /* bytes loaded since mappings were counted, and until */
  atomic_bool ending;                 /* the process is about to exit */
  _Atomic int64_t launches;           /* the clock by which programs were last used */
};

static void mark_used(tt_program *program) {
  int64_t now = atomic_fetch_add_explicit(&program->table->launches, 1, memory_order_relaxed);
  atomic_store_explicit(&program->used, now, memory_order_relaxed);
}

/* -- Programs that are loaded: a bounded number -- */

typedef struct candidate {
  tt_program *program;
  int64_t used;
} candidate;

static int by_use(const void *a, const void *b) {
  int64_t x = ((const candidate *)a)->used, y = ((const candidate *)b)->used;
  return (x > y) - (x < y);
}

/* The state changes before the users are looked at, and tt_program_await does the opposite, so one
 * of the two sees the other. */
static void unload(tt_program *program) {
  atomic_store(&program->state, TT_PROGRAM_UNLOADED);
  if (atomic_load(&program->users)) {
    atomic_store(&program->state, TT_PROGRAM_READY);
    return;
  }
  tt_executable_destroy(program->executable);
  program->executable = NULL;
  program->table->loaded_count--;
  program->table->loaded_bytes -= (int64_t)program->module.text.size;
  assert(program->table->loaded_count >= 0 && program->table->loaded_bytes >= 0);
  tt_count_add(TT_COUNT_UNLOADED, 1);
}

/* Its user is the last one, which leaves; or the compiler is the next one, and then the last. */
static void unload_dropped(tt_program *program) {
  tt_program_table *table = program->table;
  pthread_mutex_lock(&table->lock);
  bool is_coming = atomic_load(&program->state) == TT_PROGRAM_COMPILING;
  atomic_fetch_add(&program->users, is_coming ? DROPPED - 1 : -1);
  if (tt_program_is_ready(program) && !atomic_load(&table->ending)) unload(program);
  pthread_mutex_unlock(&table->lock);
}

/* Unloads what was launched longest ago; a quarter at once, so that this is seldom needed. */
static void unload_some(tt_program_table *table, int64_t limit) {
  size_t count = 0;
  const tt_intern *programs = &table->programs;
  candidate *all = tt_malloc(programs->count * sizeof *all);
  if (!all) return;
  for (size_t i = 0; i < programs->capacity; i++) {
    tt_program *program = programs->entries[i].key ? programs->entries[i].value : NULL;
    if (program && tt_program_is_ready(program))
      all[count++] = (candidate){program, atomic_load(&program->used)};
  }
  qsort(all, count, sizeof *all, by_use);
  for (size_t i = 0; i < count; i++)
    if (table->loaded_count > limit - limit / 4 || table->loaded_bytes > MAX_TEXT - MAX_TEXT / 4)
      unload(all[i].program);
  tt_free(all);
}

static bool mappings_are_scarce(tt_program_table *table, int64_t loaded) {
  table->unseen += loaded > LEAST_LOAD ? loaded : LEAST_LOAD;
  if (table->unseen < table->look_after) return false;
  int64_t room = tt_mappings_room();
  table->unseen = 0;
  table->look_after = LOOK_EVERY;
  if (room > LOOK_EVERY / BYTES_OF_MAPPING)
    table->look_after = room < INT32_MAX ? room * BYTES_OF_MAPPING : INT64_MAX;
  return room < 0;
}

/* The lock is held. */
static void add_loaded(tt_program *program) {
  tt_program_table *table = program->table;
  int64_t limit = tt_env_int(TT_ENV_PROGRAM_LIMIT), bytes = (int64_t)program->module.text.size;
  if (limit <= 0) limit = INT64_MAX;
  table->loaded_count++;
  table->loaded_bytes += bytes;
  if (mappings_are_scarce(table, bytes)) unload_some(table, table->loaded_count);
  else if (table->loaded_count > limit || table->loaded_bytes > MAX_TEXT) unload_some(table, limit);
}

/* -- Compiling -- */

static void publish(tt_program *program, tt_status status) {
  tt_program_table *table = program->table;
  pthread_mutex_lock(&table->lock);
  program->error = status;
  if (!status) add_loaded(program);
  atomic_store_explicit(&program->state, status ? TT_PROGRAM_FAILED : TT_PROGRAM_READY,
                        memory_order_release);
  pthread_cond_broadcast(&table->ended);
  pthread_mutex_unlock(&table->lock);
}

static tt_lookup lookup_of(const tt_module *module) {
  return (tt_lookup){.code = module->text.data,
                     .code_size = module->text.size,
                     .outputs = module->result_count + module->check_count};
}

static tt_status cancelled_status(void) { return tt_error(TT_CANCELLED, "the process is ending"); }

/* XLA's compiler for the CPU dies of results that no memory holds, and of values of 2^40 elements.
 * So these are refused, as the plugin refuses what it cannot allocate. */
static tt_status check_size(const tt_target *target, const tt_module *module) {
  static const int64_t most = INT64_C(1) << 38;
  bool fits = target->memory <= 0 || module->result_bytes <= target->memory;
  if (fits && (!target->xla_cpu || module->largest <= most)) return TT_SUCCESS;
  tt_text text = TT_TEXT_INIT;
  tt_text_printf(&text, "out of memory: ");
  if (fits) tt_text_printf(&text, "a value of %lld elements", (long long)module->largest);
  else tt_text_bytes(&text, module->result_bytes);
  tt_text_printf(&text, "%s, where the device has ", fits ? "" : " of results");
  tt_text_bytes(&text, target->memory);
  tt_status status = tt_text_status(&text);
  if (!status) status = tt_error(TT_RESOURCE_EXHAUSTED, "%s", text.data);
  tt_text_deinit(&text);
  return tt_status_from(status, TT_FROM_PLUGIN);
}

static void compile(void *user, bool cancelled) {
  tt_program *program = user;
  const tt_module *module = &program->module;
  if (cancelled) {
    publish(program, cancelled_status());
    return;
  }
  tt_lookup lookup = lookup_of(module);
  tt_executable *executable = NULL;
  int64_t start = tt_now_ns();
  tt_status status = check_size(program->table->target, module);
  if (!status) status = tt_compiler_get(program->table->compiler, &lookup, &executable);
  int64_t took = tt_now_ns() - start;
  tt_count_add(lookup.source == TT_SOURCE_COMPILER ? TT_COUNT_COMPILE_NS : TT_COUNT_LOAD_NS, took);
  tt_log(TT_LOG_COMPILE, "%s: %zu bytes of StableHLO, %.1f ms%s%s", module->name, module->text.size,
         (double)took / 1e6, lookup.source ? ", from the cache" : "", status ? ", failed" : "");
  program->executable = executable;
  atomic_store(&program->compile_ns, took);
  atomic_store(&program->source, (int)lookup.source);
  atomic_fetch_add(&program->users, 1);
  publish(program, status);
  if (executable) tt_compiler_save(program->table->compiler, &lookup, executable);
  tt_program_release(program);
}

static tt_status submit(tt_program *program) {
  tt_program_table *table = program->table;
  if (atomic_load(&table->ending)) return cancelled_status();
  if (!table->pool) {
    int64_t threads = tt_env_int(TT_ENV_COMPILE_THREADS);
    if (threads <= 0) threads = sysconf(_SC_NPROCESSORS_ONLN);
    TT_TRY(tt_pool_create(threads > 64 ? 64 : threads < 1 ? 1 : (int)threads, &table->pool));
  }
  return tt_pool_submit(table->pool, program->background ? TT_BACKGROUND : TT_NOW, compile,
                        program);
}

/* The lock is held. */
static void promote(tt_program *program) {
  tt_pool *pool = program->table->pool;
  if (!program->background) return;
  program->background = false;
  if (pool && atomic_load(&program->state) == TT_PROGRAM_COMPILING)
    (void)tt_pool_promote(pool, compile, program);
}

/* The lock is held. */
static void start(tt_program *program) {
  tt_status_release(program->error);
  program->error = TT_SUCCESS;
  atomic_store(&program->state, TT_PROGRAM_COMPILING);
  tt_status status = submit(program);
  if (!status) return;
  program->error = status;
  atomic_store(&program->state, TT_PROGRAM_FAILED);
}

/* What the compiler objects to, it will object to again; a shortage may be over. */
static bool was_shortage(tt_status error) {
  tt_code code = tt_status_code(error);
  return code == TT_RESOURCE_EXHAUSTED || code == TT_UNAVAILABLE || code == TT_CANCELLED;
}

/* -- Finding and adding -- */

/* Where nothing may be compiled: a cache folder may have it. */
static tt_status load(tt_program_table *table, const tt_module *module, tt_executable **out) {
  tt_lookup lookup = lookup_of(module);
  int64_t start = tt_now_ns();
  *out = tt_compiler_find(table->compiler, &lookup);
  tt_count_add(TT_COUNT_LOAD_NS, tt_now_ns() - start);
  if (*out) return TT_SUCCESS;
  return tt_error(TT_FAILED_PRECONDITION,
                  "this needs a new program, which torch.tpu.no_recompile() forbids");
}

static bool is_in_a_folder(tt_program_table *table, const tt_module *module) {
  tt_lookup lookup = lookup_of(module);
  return tt_compiler_has(table->compiler, &lookup);
}

/* Takes the module's fields. */
static tt_status add(tt_program_table *table, tt_module *module, tt_program **out) {
  tt_program *added = tt_calloc(1, sizeof *added);
  tt_text_trim(&module->text);
  tt_status status =
      added ? tt_intern_add(&table->programs, module->text.data, module->text.size, added)
            : tt_out_of_memory();
  if (status) {
    tt_free(added);
    return status;
  }
  added->table = table;
  added->module = *module;
  *module = (tt_module){.name = NULL};
  atomic_store(&added->state, TT_PROGRAM_UNLOADED);
  mark_used(added);
  tt_growth_note(TT_GROWTH_BYTES, (int64_t)added->module.text.size);
  *out = added;
  return TT_SUCCESS;
}

/* The lock is held, as by the two above. */
static void put(tt_program *program, tt_executable *executable) {
  atomic_fetch_add(&program->users, 1); /* not the one that makes room for itself */
  program->executable = executable;
  add_loaded(program);
  atomic_store_explicit(&program->state, TT_PROGRAM_READY, memory_order_release);
  atomic_fetch_sub(&program->users, 1);
}

/* The lock is held. */
static tt_status find_or_add(tt_program_table *table, tt_module *module, tt_want want,
                             tt_program **out) {
  tt_program *found = tt_intern_find(&table->programs, module->text.data, module->text.size);
  bool missing = !found || atomic_load(&found->state) == TT_PROGRAM_UNLOADED;
  tt_executable *ready = NULL;
  const tt_module *text = found ? &found->module : module;
  if (missing && want == TT_WANT_KNOWN) TT_TRY(load(table, text, &ready));
  bool at_hand = want == TT_WANT_FOUND && missing && is_in_a_folder(table, text);
  *out = found;
  if (want == TT_WANT_FOUND && !found && !at_hand) return TT_SUCCESS;
  if (want == TT_WANT_FOUND) want = TT_WANT_BACKGROUND;
  tt_count_add(found ? TT_COUNT_PROGRAM_HITS : TT_COUNT_PROGRAMS, 1);
  if (found && want != TT_WANT_BACKGROUND) promote(found);
  if (!found) {
    tt_status status = add(table, module, &found);
    if (status) {
      tt_executable_destroy(ready);
      return status;
    }
    found->background = want == TT_WANT_BACKGROUND;
  }
  if (missing && ready) put(found, ready);
  else if (missing && (want == TT_WANT_NOW || at_hand)) start(found);
  *out = found;
  return TT_SUCCESS;
}

tt_status tt_program_intern(tt_program_table *table, tt_module *module, tt_want want,
                            tt_program **out) {
  pthread_mutex_lock(&table->lock);
  tt_status status = find_or_add(table, module, want, out);
  pthread_mutex_unlock(&table->lock);
  return status;
}

tt_status tt_program_adopt(tt_program_table *table, tt_module *module, tt_executable *executable,
                           tt_program **out) {
  tt_status status = TT_SUCCESS;
  pthread_mutex_lock(&table->lock);
  tt_program *found = tt_intern_find(&table->programs, module->text.data, module->text.size);
  if (!found) status = add(table, module, &found);
  bool missing = !status && atomic_load(&found->state) == TT_PROGRAM_UNLOADED;
  if (missing) put(found, executable);
  pthread_mutex_unlock(&table->lock);
  if (!missing) tt_executable_destroy(executable);
  if (!status) *out = found;
  return status;
}

static tt_status program_of_graph(tt_program_table *table, const tt_graph *graph, tt_want want,
                                  tt_program **out, bool *fresh) {
  tt_module module;
  tt_target elsewhere = tt_target_elsewhere(table->target);
  const tt_target *target = want == TT_WANT_TEXT ? &elsewhere : table->target;
  tt_status status = tt_graph_build(graph, target, &module);
  if (!status) status = tt_program_intern(table, &module, want, out);
  *fresh = !status && !module.text.data; /* it went into the table */
  tt_module_deinit(&module);
  return status;
}

tt_status tt_program_of_graph(tt_program_table *table, const tt_graph *graph, tt_want want,
                              tt_program **out, bool *fresh) {
  TT_TRY(program_of_graph(table, graph, want, out, fresh));
  if (*out) atomic_store(&(*out)->lasting, true);
  return TT_SUCCESS;
}

tt_status tt_program_pin_graph(tt_program_table *table, const tt_graph *graph, tt_want want,
                               tt_program **out, bool *fresh) {
  TT_TRY(program_of_graph(table, graph, want, out, fresh));
  tt_program_pin(*out);
  return TT_SUCCESS;
}

bool tt_program_is_known(const tt_program_table *table, const tt_call *call) {
  return call->target != table->target || __atomic_load_n(&call->program, __ATOMIC_ACQUIRE);
}

tt_status tt_program_of_call(tt_program_table *table, tt_call *call, tt_want want,
                             tt_program **out) {
  bool own = call->target == table->target;
  *out = own ? __atomic_load_n(&call->program, __ATOMIC_ACQUIRE) : NULL;
  if (*out) return TT_SUCCESS;
  tt_arena arena = TT_ARENA_INIT;
  tt_graph *graph = NULL;
  bool fresh = false;
  tt_status status = tt_graph_of_call(&arena, call, &graph);
  if (!status) status = tt_program_of_graph(table, graph, want, out, &fresh);
  if (!status && own) __atomic_store_n(&call->program, *out, __ATOMIC_RELEASE);
  tt_arena_deinit(&arena);
  return status;
}

/* -- Waiting -- */

/* The lock is held. */
static tt_status await_locked(tt_program *program) {
  tt_program_table *table = program->table;
  promote(program);
  for (bool retried = false;;) {
    while (atomic_load(&program->state) == TT_PROGRAM_COMPILING)
      pthread_cond_wait(&table->ended, &table->lock);
    bool again = !retried && was_shortage(program->error);
    if (!again && atomic_load(&program->state) != TT_PROGRAM_UNLOADED)
      return tt_status_clone(program->error);
    retried = again;
    start(program);
  }
}

tt_status tt_program_await(tt_program *program) {
  if (atomic_load_explicit(&program->table->ending, memory_order_relaxed))
    return cancelled_status();
  atomic_fetch_add(&program->users, 1);
  mark_used(program);
  if (!atomic_load_explicit(&program->launched, memory_order_relaxed) &&
      !atomic_exchange(&program->launched, true))
    tt_count_add(TT_COUNT_PROGRAMS_LAUNCHED, 1);
  if (tt_program_is_ready(program)) return TT_SUCCESS;
  pthread_mutex_lock(&program->table->lock);
  tt_status status = await_locked(program);
  pthread_mutex_unlock(&program->table->lock);
  if (status) tt_program_release(program);
  return status;
}

void tt_program_release(tt_program *program) {
  static const int last = DROPPED | 1;
  int users = atomic_load(&program->users);
  while (!atomic_compare_exchange_weak(&program->users, &users, users == last ? 1 : users - 1));
  if (users == last) unload_dropped(program);
}

void tt_program_pin(tt_program *program) {
  atomic_fetch_add(&program->pins, 1);
  atomic_fetch_add(&program->users, 1);
  atomic_fetch_and(&program->users, ~DROPPED);
}

void tt_program_unpin(tt_program *program) {
  if (atomic_fetch_sub(&program->pins, 1) == 1 && !atomic_load(&program->lasting))
    atomic_fetch_or(&program->users, DROPPED);
  tt_program_release(program);
}

bool tt_program_is_ready(const tt_program *program) {
  return program && atomic_load(&program->state) == TT_PROGRAM_READY;
}

bool tt_program_poll(tt_program *program, tt_want want) {
  if (!program) return false;
  if (want != TT_WANT_KNOWN && atomic_load(&program->state) == TT_PROGRAM_UNLOADED) {
    pthread_mutex_lock(&program->table->lock);
    if (atomic_load(&program->state) == TT_PROGRAM_UNLOADED) start(program);
    pthread_mutex_unlock(&program->table->lock);
  }
  return tt_program_is_ready(program);
}

bool tt_program_is_coming(tt_program *program) {
  if (!program || tt_program_is_ready(program)) return program;
  pthread_mutex_lock(&program->table->lock);
  bool waited_for = !program->background && atomic_load(&program->state) == TT_PROGRAM_COMPILING;
  pthread_mutex_unlock(&program->table->lock);
  return waited_for;
}

bool tt_program_needs(tt_program *program, tt_program_memory *out) {
  atomic_fetch_add(&program->users, 1);
  bool known = tt_program_is_ready(program);
  tt_status status = known ? tt_executable_memory(program->executable, out) : TT_SUCCESS;
  tt_program_release(program);
  known = known && !status;
  tt_status_release(status);
  return known;
}

/* What the plugin does not tell is no error. */
static tt_status unless_untold(tt_status status) {
  if (tt_status_source(status) == TT_FROM_HOST_MEMORY) return status;
  tt_status_release(status);
  return TT_SUCCESS;
}

tt_status tt_program_tell(tt_program *program, tt_program_facts *out) {
  *out = (tt_program_facts){.bytes = -1};
  TT_TRY(tt_program_await(program));
  out->source = (tt_disk_source)atomic_load(&program->source);
  out->compile_ns = atomic_load(&program->compile_ns);
  out->memory_known = tt_program_needs(program, &out->memory);
  tt_status status = unless_untold(tt_executable_bytes(program->executable, &out->bytes));
  if (!status)
    status = unless_untold(tt_executable_optimized(program->executable, &out->optimized));
  tt_program_release(program);
  return status;
}

/* -- The table -- */

tt_status tt_program_table_create(const tt_target *target, tt_program_table **out) {
  tt_program_table *table = tt_calloc(1, sizeof *table);
  if (!table) return tt_out_of_memory();
  table->target = target;
  table->programs = (tt_intern)TT_INTERN_LENT;
  table->look_after = LOOK_EVERY;
  pthread_mutex_init(&table->lock, NULL);
  pthread_cond_init(&table->ended, NULL);
  tt_status status = tt_compiler_create(target, &table->compiler);
  if (status) tt_program_table_destroy(table);
  else *out = table;
  return status;
}

const tt_target *tt_program_table_target(const tt_program_table *table) { return table->target; }
tt_compiler *tt_program_table_compiler(tt_program_table *table) { return table->compiler; }

bool tt_program_table_end(tt_program_table *table) {
  pthread_mutex_lock(&table->lock);
  atomic_store(&table->ending, true);
  tt_pool *last = table->pool;
  table->pool = NULL;
  pthread_mutex_unlock(&table->lock);
  bool all_ended = tt_pool_end(last);
  tt_compiler_flush(table->compiler);
  return all_ended;
}

static void destroy(void *user) {
  tt_program *program = user;
  tt_executable_destroy(program->executable);
  tt_status_release(program->error);
  tt_module_deinit(&program->module);
  tt_free(program);
}

static bool is_in_use(void *user) {
  tt_program *program = user;
  int state = atomic_load(&program->state);
  return state == TT_PROGRAM_COMPILING || state == TT_PROGRAM_READY || atomic_load(&program->users);
}

void tt_program_table_reclaim(tt_program_table *table) {
  pthread_mutex_lock(&table->lock);
  tt_status_release(tt_intern_filter(&table->programs, is_in_use, destroy));
  pthread_mutex_unlock(&table->lock);
}

int64_t tt_program_table_size(tt_program_table *table) {
  pthread_mutex_lock(&table->lock);
  int64_t count = (int64_t)table->programs.count;
  pthread_mutex_unlock(&table->lock);
  return count;
}

void tt_program_table_destroy(tt_program_table *table) {
  if (!table) return;
  tt_pool_destroy(table->pool);
  for (size_t i = 0; i < table->programs.capacity; i++)
    if (table->programs.entries[i].key) destroy(table->programs.entries[i].value);
  tt_intern_deinit(&table->programs);
  tt_compiler_destroy(table->compiler);
  pthread_mutex_destroy(&table->lock);
  pthread_cond_destroy(&table->ended);
  tt_free(table);
}
