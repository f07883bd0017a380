// Early return on a failed absl::Status, without a ladder of ifs.
//
//   absl::Status Copy(Reader& in, Writer& out) {
//     TWIN_ASSIGN_OR_RETURN(std::string bytes, in.ReadAll());
//     TWIN_RETURN_IF_ERROR(out.Append(bytes));
//     return absl::OkStatus();
//   }
//
// Debian 12's Abseil (20220623) has no such macros; these follow the names that
// newer releases use, under our own prefix.
#ifndef TWINFORGE_BASE_STATUS_MACROS_H_
#define TWINFORGE_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define TWIN_RETURN_IF_ERROR(expression)         \
  do {                                           \
    ::absl::Status twin_status_ = (expression);  \
    if (!twin_status_.ok()) return twin_status_; \
  } while (false)

#define TWIN_CONCAT_INNER_(a, b) a##b
#define TWIN_CONCAT_(a, b) TWIN_CONCAT_INNER_(a, b)

#define TWIN_ASSIGN_OR_RETURN(target, expression) \
  TWIN_ASSIGN_OR_RETURN_IMPL_(TWIN_CONCAT_(twin_statusor_, __LINE__), target, expression)

#define TWIN_ASSIGN_OR_RETURN_IMPL_(holder, target, expression) \
  auto holder = (expression);                                   \
  if (!holder.ok()) return std::move(holder).status();          \
  target = std::move(holder).value()

#endif  // TWINFORGE_BASE_STATUS_MACROS_H_
