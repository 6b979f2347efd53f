#include "dist/mail.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

typedef struct tt_letter {
  struct tt_letter *next;
  int64_t tag, size;
  unsigned char data[];
} tt_letter;

void tt_mail_init(tt_mail *mail) {
  pthread_mutex_init(&mail->lock, NULL);
  tt_cond_init(&mail->came);
  mail->first = NULL;
}

void tt_mail_deinit(tt_mail *mail) {
  for (tt_letter *one = mail->first, *next; one; one = next) {
    next = one->next;
    tt_free(one);
  }
  pthread_cond_destroy(&mail->came);
  pthread_mutex_destroy(&mail->lock);
}

tt_status tt_mail_post(tt_mail *mail, int64_t tag, const void *data, int64_t size) {
  tt_letter *letter = tt_malloc(sizeof *letter + (size_t)size);
  if (!letter) return tt_out_of_memory();
  *letter = (tt_letter){.tag = tag, .size = size};
  if (size) memcpy(letter->data, data, (size_t)size);
  pthread_mutex_lock(&mail->lock);
  tt_letter **at = &mail->first;
  while (*at) at = &(*at)->next;
  *at = letter;
  pthread_cond_broadcast(&mail->came);
  pthread_mutex_unlock(&mail->lock);
  return TT_SUCCESS;
}

/* The lock is held. */
static tt_letter **find(tt_mail *mail, int64_t tag) {
  tt_letter **at = &mail->first;
  while (*at && (*at)->tag != tag) at = &(*at)->next;
  return at;
}

/* The lock is held. Where it is; at the end if none came. */
static tt_letter **await(tt_mail *mail, int64_t tag, int64_t timeout_ms) {
  struct timespec until = tt_deadline(timeout_ms);
  bool late = false;
  while (!*find(mail, tag) && !late)
    late = pthread_cond_timedwait(&mail->came, &mail->lock, &until) == ETIMEDOUT;
  return find(mail, tag);
}

tt_status tt_mail_take(tt_mail *mail, int64_t tag, void *data, int64_t size, int64_t timeout_ms) {
  tt_status status = TT_SUCCESS;
  pthread_mutex_lock(&mail->lock);
  tt_letter **at = await(mail, tag, timeout_ms), *letter = *at;
  if (!letter) {
    status = tt_error(TT_UNAVAILABLE, "the rank sent nothing to itself");
  } else if (letter->size != size) {
    status =
        tt_error(TT_INVALID_ARGUMENT, "the rank sent %" PRId64 " bytes to itself, not %" PRId64,
                 letter->size, size);
  } else {
    *at = letter->next;
    if (size) memcpy(data, letter->data, (size_t)size);
  }
  pthread_mutex_unlock(&mail->lock);
  if (!status) tt_free(letter);
  return status;
}
