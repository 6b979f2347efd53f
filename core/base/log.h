/* Logging: silent unless TORCH_TPU_LOG names the topic. Thread-safe. */
#ifndef TT_LOG_H
#define TT_LOG_H

#include <stdbool.h>

typedef enum tt_topic { TT_LOG_COMPILE, TT_LOG_LAUNCH, TT_LOG_PLUGIN, TT_LOG_HOST } tt_topic;

bool tt_log_on(tt_topic topic);
void tt_log(tt_topic topic, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
