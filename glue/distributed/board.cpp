// The board of a group's members (core/dist/members.h) is PyTorch's store.
#include "distributed/distributed.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <exception>

namespace tt {
namespace {

std::terminate_handler before = nullptr;

// Gloo throws on its own thread where a message is larger than what is expected. The others cannot
// ask a process that is gone.
void tell_and_end() {
  tt_members_farewell();
  if (before) before();
  std::abort();
}

template <class Act> tt_status with_store(void* user, const Act& act) {
  return attempt([&] { act(**static_cast<Ptr<Store>*>(user)); });
}

tt_status put(void* user, const char* key, const char* text) {
  return with_store(user, [&](Store& store) { store.set(key, std::string(text)); });
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

Carrier::Carrier(Ptr<Store> store, int rank, int size, Milliseconds timeout,
                 const std::string& name, std::vector<int64_t> global_ranks,
                 std::vector<int64_t> some_devices)
    : devices(std::move(some_devices)) {
  static std::once_flag once;
  std::call_once(once, [] { before = std::set_terminate(tell_and_end); });
  if (devices.empty()) {
    std::tie(store, backend) = carrier_maker()(store, rank, size, timeout, name);
  } else {  // ranks that are threads have one store
    auto prefixed = c10::dynamic_intrusive_pointer_cast<c10d::PrefixStore>(store);
    const void* whole = prefixed ? prefixed->getUnderlyingNonPrefixStore().get() : store.get();
    std::string key = name + " of " + std::to_string(reinterpret_cast<uintptr_t>(whole));
    check(tt_notices_retain(key.c_str(), size, &notices));
  }
  for (auto i = static_cast<int64_t>(global_ranks.size()); i < size; i++) global_ranks.push_back(i);
  tt_board board = board_of(std::move(store));
  check(tt_members_create(name.c_str(), rank, size, global_ranks.data(), &board, &members));
  tt_members_set_timeout(members, timeout.count());
  tt_mail_init(&to_itself);
}

Carrier::~Carrier() {
  tt_mail_deinit(&to_itself);
  tt_notices_release(notices);
  tt_members_release(members);
}

}  // namespace tt
