#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACCEL_MAX_TEXT ((size_t)16 << 10)

atomic_int_fast64_t accel_live;

int64_t tt_accel_live_objects(void) { return atomic_load(&accel_live); }

void *accel_alloc(size_t count, size_t size) {
  void *memory = calloc(count ? count : 1, size ? size : 1);
  if (!memory) abort();
  return memory;
}

static PJRT_Error *make(int code, const char *text, size_t size) {
  PJRT_Error *error = accel_alloc(1, sizeof *error + size + 1);
  error->code = code;
  memcpy(error->text, text, size);
  atomic_fetch_add(&accel_live, 1);
  return error;
}

PJRT_Error *accel_error(int code, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return make(code, text, strlen(text));
}

PJRT_Error *accel_error_copy(const PJRT_Error *error) {
  return error ? make(error->code, error->text, strlen(error->text)) : NULL;
}

void accel_error_free(PJRT_Error *error) {
  if (error) atomic_fetch_sub(&accel_live, 1);
  free(error);
}

PJRT_Error *accel_error_of_inner(PJRT_Error *inner) {
  if (!inner) return NULL;
  ACCEL_ARGS(Error_GetCode, code, .error = inner, .code = TT_UNKNOWN);
  ACCEL_ARGS(Error_Message, text, .error = inner);
  ACCEL_ARGS(Error_Destroy, destroy, .error = inner);
  (void)accel_inner->PJRT_Error_GetCode(&code);
  accel_inner->PJRT_Error_Message(&text);
  size_t size = text.message_size < ACCEL_MAX_TEXT ? text.message_size : ACCEL_MAX_TEXT;
  PJRT_Error *error = make(code.code, text.message, size);
  accel_inner->PJRT_Error_Destroy(&destroy);
  return error;
}

void accel_Error_Destroy(PJRT_Error_Destroy_Args *args);
void accel_Error_Destroy(PJRT_Error_Destroy_Args *args) { accel_error_free(args->error); }

void accel_Error_Message(PJRT_Error_Message_Args *args);
void accel_Error_Message(PJRT_Error_Message_Args *args) {
  args->message = args->error->text;
  args->message_size = strlen(args->error->text);
}

ACCEL(Error_GetCode) {
  ACCEL_ENTER(Error_GetCode);
  args->code = args->error->code;
  return NULL;
}
