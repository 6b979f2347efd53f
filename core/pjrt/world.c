/* The board of a plugin's processes, as the callbacks that PJRT asks for. The plugin leaves the
 * size of their arguments unset, so it is not looked at. */
#include "pjrt/internal.h"

#include <string.h>

static PJRT_Error *raise(PJRT_CallbackError *error, tt_code code, const char *text) {
  return (*error)((int)code, text, strlen(text));
}

/* Takes the status. */
static PJRT_Error *raise_status(PJRT_CallbackError *error, tt_status status) {
  PJRT_Error *raised = raise(error, tt_status_code(status), tt_status_message(status));
  tt_status_release(status);
  return raised;
}

static void delete_value(char *value) { tt_free(value); }

/* The caller frees *value, which has what `text` has, where that was found. Takes the status. */
static tt_status copy(tt_status status, const tt_text *text, bool found, char **value,
                      size_t *size) {
  if (!status) status = tt_text_status(text);
  if (status || !found) return status;
  *value = tt_malloc(text->size + 1);
  *size = text->size;
  if (!*value) return tt_out_of_memory();
  if (text->size) memcpy(*value, text->data, text->size);
  return TT_SUCCESS;
}

static tt_status look(const tt_board *board, const char *key, char **value, size_t *size,
                      bool *found) {
  tt_text text = TT_TEXT_INIT;
  tt_status status = board->get(board->user, key, &text, found);
  status = copy(status, &text, *found, value, size);
  tt_text_deinit(&text);
  return status;
}

/* Until it is there, or so much time has passed. */
static tt_status await(const tt_board *board, const char *key, int64_t timeout_ms, char **value,
                       size_t *size) {
  tt_text text = TT_TEXT_INIT;
  bool found = false;
  tt_status status = tt_board_await(board, key, tt_now_ms() + timeout_ms, NULL, &text, &found);
  status = copy(status, &text, found, value, size);
  tt_text_deinit(&text);
  if (status || found) return status;
  return tt_error(TT_UNAVAILABLE,
                  "another process has not said '%s' within %g s: one of them did not open the "
                  "device",
                  key, (double)timeout_ms / 1000);
}

static PJRT_Error *get(PJRT_KeyValueGetCallback_Args *args) {
  char *key = tt_strndup(args->key, args->key_size);
  args->value_deleter_callback = delete_value;
  tt_status status =
      key ? await(args->user_arg, key, args->timeout_in_ms, &args->value, &args->value_size)
          : tt_out_of_memory();
  tt_free(key);
  return status ? raise_status(args->callback_error, status) : NULL;
}

static PJRT_Error *try_get(PJRT_KeyValueTryGetCallback_Args *args) {
  char *key = tt_strndup(args->key, args->key_size);
  bool found = false;
  args->value_deleter_callback = delete_value;
  tt_status status =
      key ? look(args->user_arg, key, &args->value, &args->value_size, &found) : tt_out_of_memory();
  PJRT_Error *error = NULL;
  if (status) error = raise_status(args->callback_error, status);
  else if (!found) error = raise(args->callback_error, TT_NOT_FOUND, key);
  tt_free(key);
  return error;
}

static PJRT_Error *put(PJRT_KeyValuePutCallback_Args *args) {
  const tt_board *board = args->user_arg;
  char *key = tt_strndup(args->key, args->key_size);
  tt_status status =
      key ? board->put(board->user, key, args->value, args->value_size) : tt_out_of_memory();
  tt_free(key);
  return status ? raise_status(args->callback_error, status) : NULL;
}

void tt_pjrt_offer_board(const tt_board *board, PJRT_Client_Create_Args *args) {
  args->kv_get_callback = get;
  args->kv_try_get_callback = try_get;
  args->kv_put_callback = put;
  args->kv_get_user_arg = args->kv_try_get_user_arg = args->kv_put_user_arg = (void *)board;
}
