// The board of a group's members (core/dist/members.h) is PyTorch's store.
#include "distributed/distributed.h"

namespace tt {
namespace {

template <class Act> tt_status with_store(void* user, const Act& act) {
  return attempt(TT_UNAVAILABLE, [&] { act(**static_cast<Ptr<Store>*>(user)); });
}

tt_status put(void* user, const char* key, const void* data, size_t size) {
  auto bytes = size ? std::string(static_cast<const char*>(data), size) : std::string();
  return with_store(user, [&](Store& store) { store.set(key, bytes); });
}

tt_status get(void* user, const char* key, tt_text* out, bool* found) {
  return with_store(user, [&](Store& store) {
    *found = store.check({key});
    if (!*found) return;
    std::string text = store.get_to_str(key);
    tt_text_add(out, text.data(), text.size());
  });
}

tt_status remove(void* user, const char* key) {
  return with_store(user, [&](Store& store) { store.deleteKey(key); });
}

tt_status again(void* user, tt_board* out) {
  return with_store(user, [&](Store& store) { *out = board_of(store.clone()); });
}

void release(void* user) { delete static_cast<Ptr<Store>*>(user); }

}  // namespace

tt_board board_of(Ptr<Store> store) {
  return {new Ptr<Store>(std::move(store)), &put, &get, &remove, &again, &release};
}

}  // namespace tt
