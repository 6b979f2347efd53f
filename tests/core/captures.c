#include "captures.h"

void touch(tt_storage *storage) { ok(tt_capture_touch(stream, storage, &policy)); }

void begin(void) { ok(tt_capture_begin(stream, &policy)); }

tt_captured *end(void) {
  tt_captured *made = NULL;
  ok(tt_capture_end(stream, &policy, &made));
  return made;
}

void replay(tt_captured *captured, const tt_philox_place *places) {
  ok(tt_captured_replay(captured, stream, NULL, places, &policy, 0));
}
