/* The end of a process: nothing is waited for that may last, and no error goes by unseen. */
#include "session/session.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_NS = 500000000 };

static atomic_bool unseen; /* an error of which nobody was told */
static atomic_bool stuck;  /* a thread is in the plugin still */

/* What was recorded for nobody is no error, nor is what is not computed any more. */
static void tell(tt_status status) {
  if (status && tt_status_code(status) != TT_CANCELLED) {
    fprintf(stderr, "torch_tpu: the program ended without having seen this error: %s\n",
            tt_status_message(status));
    atomic_store(&unseen, true);
  }
  tt_status_release(status);
}

static void *end(void *user) {
  tt_session *session = user;
  for (int i = 0; i < session->device_count; i++) tt_device_abandon_captures(session->devices[i]);
  if (!tt_program_table_end(session->programs)) atomic_store(&stuck, true);
  tell(tt_session_sync(session, &tt_policy_any));
  return NULL;
}

/* What C's exit would do next is not for a process with a thread in the plugin: it tears that
 * down. */
static void leave(int status, void *user) {
  (void)user;
  bool fails = status == 0 && atomic_load(&unseen);
  if (!fails && !atomic_load(&stuck)) return;
  fflush(NULL);
  _exit(fails ? EXIT_FAILURE : status);
}

void tt_session_end(tt_session *session) {
  pthread_t thread;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  int64_t ns = until.tv_nsec + WAIT_NS;
  until.tv_sec += ns / 1000000000;
  until.tv_nsec = ns % 1000000000;
  on_exit(leave, NULL);
  if (pthread_create(&thread, NULL, end, session)) end(session);
  else if (pthread_timedjoin_np(thread, NULL, &until)) atomic_store(&stuck, true);
}
