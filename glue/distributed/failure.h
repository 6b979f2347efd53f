// What is said of a collective that failed: who was not there, and where the ranks have parted.
#pragma once

#include "distributed/distributed.h"

namespace tt {

// The error of a collective of which the carrier says `what`. Takes up to ten seconds, in which the
// ranks tell one another through the store what they did.
tt_status explain_failure(const std::shared_ptr<Carrier>& carrier, const std::string& order,
                          const tt_collective& c, const std::string& what);

// From now on the other ranks are told, too, what this one did if its process ends by
// std::terminate.
void tell_where_it_ends(const std::shared_ptr<Carrier>& carrier);

}  // namespace tt
