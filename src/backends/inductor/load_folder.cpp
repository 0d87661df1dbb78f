#include "backends/inductor/load_folder.h"

#include "precast/error.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

namespace precast::inductor {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kNoExecSeal = 0x0008;  // MFD_NOEXEC_SEAL, since Linux 6.3: older headers lack it, and older kernels refuse it

[[noreturn]] void fail(const std::string& what) {
  const std::string reason = std::generic_category().message(errno);
  throw PrecompileError(ErrorCode::environment, fmt::format("opening a kernel package: cannot {}: {}", what, reason));
}

/// Memory is preferred to a disk; both take a few small files.
fs::path make_private_folder(const std::string& name) {
  std::error_code no_temporary_folder;
  std::string tried;
  for (const fs::path& above : {fs::path("/dev/shm"), fs::temp_directory_path(no_temporary_folder)}) {
    if (above.empty()) continue;
    std::string path = (above / ("precast-" + name + "-XXXXXX")).string();
    if (::mkdtemp(path.data()) != nullptr) return path;  // mode 0700
    tried += (tried.empty() ? "'" : " or '") + above.string() + "'";
  }
  fail(fmt::format("create a folder in {} (TMPDIR names another)", tried));
}

/// A library that no one can change any more. It is mapped, not executed as a program, so it may be sealed against that too:
/// systems that allow no other memory files take it.
int sealed_memory(std::span<const std::byte> bytes) {
  constexpr const char* name = "precast-kernels";
  int fd = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | kNoExecSeal);
  if (fd < 0 && errno == EINVAL) fd = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) fail("create a memory file (memfd_create)");
  const bool written = store::write_all(fd, bytes) && ::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) == 0;
  if (written) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  fail(fmt::format("keep a library of {} bytes in memory", bytes.size()));
}

void write_file(const fs::path& path, std::span<const std::byte> bytes) {
  const store::Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (file.get() < 0 || !store::write_all(file.get(), bytes)) fail(fmt::format("write '{}'", path.string()));
}

}  // namespace

PrivateFolder::PrivateFolder(const std::string& name) : path_(make_private_folder(name)) {}

PrivateFolder::~PrivateFolder() {
  std::error_code unused;  // nothing is left to do about it
  fs::remove_all(path_, unused);
}

LoadFolder::LoadFolder(const Contents& contents, const std::string& name)
    : library_(sealed_memory(contents.files.at(contents.library))), folder_(name) {
  fs::path folder = path();
  for (const fs::path& part : fs::path(kModelFolder)) {
    folder /= part;
    if (::mkdir(folder.c_str(), S_IRWXU) != 0) fail(fmt::format("create '{}'", folder.string()));
  }
  for (const auto& [file, bytes] : contents.files)
    if (file != contents.library) write_file(folder / file, bytes);
  const fs::path link = folder / contents.library;
  if (::symlink(fmt::format("/proc/self/fd/{}", library_.get()).c_str(), link.c_str()) != 0)
    fail(fmt::format("create '{}'", link.string()));
}

}  // namespace precast::inductor
