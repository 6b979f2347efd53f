#include "pjrt/internal.h"

tt_status tt_pjrt_await(const PJRT_Api *api, PJRT_Event *event) {
  TT_ARGS(Event_Await, args, .event = event);
  return TT_CALL(api, Event_Await, &args);
}

void tt_pjrt_event_destroy(const PJRT_Api *api, PJRT_Event *event) {
  if (!event) return;
  TT_ARGS(Event_Destroy, args, .event = event);
  TT_DESTROY(api, Event_Destroy, &args);
}

tt_status tt_event_await(tt_client *client, tt_event *event) {
  return tt_pjrt_await(client->api, event);
}

bool tt_event_ready(tt_client *client, tt_event *event) {
  TT_ARGS(Event_IsReady, args, .event = event);
  PJRT_Error *error = client->api->PJRT_Event_IsReady(&args);
  if (!error) return args.is_ready;
  tt_pjrt_drop(client->api, error, "Event_IsReady");
  return true; /* waiting for it will tell what is wrong */
}

void tt_event_destroy(tt_client *client, tt_event *event) {
  tt_pjrt_event_destroy(client->api, event);
}
