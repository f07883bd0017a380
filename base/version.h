// The tool's version, written into manifests and JSON. CMake's project() holds the same number
// (tests/cli checks that).
#ifndef TWINFORGE_BASE_VERSION_H_
#define TWINFORGE_BASE_VERSION_H_

namespace twinforge {
inline constexpr char kVersion[] = "0.1.0";
}  // namespace twinforge

#endif  // TWINFORGE_BASE_VERSION_H_
