#include "exported.h"

#include <stdio.h>
#include <unistd.h>

char folder[64], path[96], other[96];

static const char add_text[] =
    "module @export {\n"
    "func.func public @main(%arg0: tensor<2xf32>, %arg1: tensor<2xf32>, %arg2: tensor<4xui32>)"
    " -> (tensor<2xf32>, tensor<4xui32>) {\n"
    "%0 = stablehlo.add %arg0, %arg1 : tensor<2xf32>\n"
    "func.return %0, %arg2 : tensor<2xf32>, tensor<4xui32>\n}\n}\n";
const float weight[2] = {10, 20};
tt_port ports[5];

tt_exported content(void) {
  tt_type floats = type_of(TT_F32, 1, DIMS(2)), place = type_of(TT_U32, 1, DIMS(4));
  ports[0] = (tt_port){TT_PORT_INPUT, "x", floats, -1, NULL};
  ports[1] = (tt_port){TT_PORT_WEIGHT, "layer.weight", floats, -1, weight};
  ports[2] = (tt_port){TT_PORT_RANDOM, "random", place, -1, NULL};
  ports[3] = (tt_port){TT_PORT_OUTPUT, "output", floats, 0, NULL};
  ports[4] = (tt_port){TT_PORT_OUTPUT, "place", place, -1, NULL};
  return (tt_exported){.code = {add_text, sizeof add_text - 1},
                       .note = {"a note", 6},
                       .plugin = {"/a/plugin.so", 12},
                       .blocks = 7,
                       .parameter_count = 3,
                       .output_count = 2,
                       .ports = ports};
}

int folder_setup(void **state) {
  (void)state;
  const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  snprintf(folder, sizeof folder, "%s/test_export.XXXXXX", base);
  if (!mkdtemp(folder)) return -1;
  snprintf(path, sizeof path, "%s/program", folder);
  snprintf(other, sizeof other, "%s/other", folder);
  return 0;
}

int folder_teardown(void **state) {
  (void)state;
  (void)unlink(path);
  (void)unlink(other);
  return rmdir(folder);
}
