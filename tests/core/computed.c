#include "computed.h"

tt_stream *stream, *second;

void on_all(void (*test)(void)) {
  static const tt_mode modes[] = {TT_MODE_STRICT, TT_MODE_FUSED, TT_MODE_DEBUG};
  for (int plugin = 0; plugin < PLUGINS; plugin++) {
    if (!numbers_open(plugin)) skip();
    stream = stream_at(0);
    ok(tt_stream_get(session->devices[0], 3, &second));
    for (int i = 0; i < 3; i++) {
      policy.mode = modes[i];
      test();
    }
    ok(session_sync());
    assert_int_equal(numbers_close(), 0);
  }
}

void release(int count, tt_storage **storages) {
  for (int i = 0; i < count; i++) tt_storage_release(storages[i]);
}
