#include "store/store.h"

#include "precast/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>

namespace precast::store {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Files files_of(char fill, std::size_t size = 100000) {
  return {{"kernel.so", std::vector<std::byte>(size, static_cast<std::byte>(fill))},
          {"metadata.json", std::vector<std::byte>(10, static_cast<std::byte>(fill))},
          {"empty", {}}};
}

FileViews views(const Files& files) {
  return {files.begin(), files.end()};
}

unsigned mode_of(const fs::path& path) {
  struct stat status = {};
  EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777U;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

template <class Call>
std::string message(const Call& call) {
  try {
    call();
  } catch (const StoreError& error) {
    return error.what();
  }
  return "no error";
}

/// Runs `body` in a process of its own, which ends with 0 if it returns true.
pid_t start(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      ::_exit(body() ? 0 : 1);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
      ::_exit(2);
    }
  }
  return child;
}

int exit_code(pid_t child) {
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "precast-store-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    above = name;
    folder = above / "store";
    previous_ = set_log_sink([this](LogLevel, std::string_view text) { log.emplace_back(text); });
  }
  void TearDown() override {
    set_log_sink(previous_);
    fs::remove_all(above);
  }

  fs::path above, folder;
  std::vector<std::string> log;

 private:
  LogSink previous_;
};

TEST_F(StoreTest, AnEntryComesBackByteForByteAndLeavesNoOtherFile) {
  Store store(folder);
  const Files files = files_of('a');
  EXPECT_EQ(store.put("key-1.0_a", views(files)), folder / "key-1.0_a");
  EXPECT_EQ(Store(folder).get("key-1.0_a"), files);
  EXPECT_EQ(store.get("other"), std::nullopt);
  EXPECT_THAT(names_in(folder), ElementsAre("key-1.0_a"));
  EXPECT_THAT(log, IsEmpty());
}

TEST_F(StoreTest, OnlyTheOwnerCanReadEntriesWhateverTheUmask) {  // C191
  const mode_t before = ::umask(0);
  Store store(above / "made" / "too" / "store");
  const fs::path entry = store.put("key", views(files_of('a')));
  ::umask(before);
  EXPECT_EQ(mode_of(store.folder()), 0700U);
  EXPECT_EQ(mode_of(entry), 0700U);
  for (const std::string& name : names_in(entry)) EXPECT_EQ(mode_of(entry / name), 0600U) << name;
}

TEST_F(StoreTest, EqualFilesAreKeptAsTheyAreAndOthersReplaceThem) {
  Store store(folder);
  struct stat first = {}, second = {};
  ASSERT_EQ(::stat(store.put("key", views(files_of('a'))).c_str(), &first), 0);
  ASSERT_EQ(::stat(store.put("key", views(files_of('a'))).c_str(), &second), 0);
  EXPECT_EQ(first.st_ino, second.st_ino);
  store.put("key", views(files_of('b')));
  EXPECT_EQ(store.get("key"), files_of('b'));
  EXPECT_THAT(names_in(folder), ElementsAre("key"));
}

TEST_F(StoreTest, NamesThatCouldLeaveTheFolderAreRefused) {  // C191
  Store store(folder);
  for (const std::string bad : {"", ".", "..", "../evil", "a/b", ".hidden", "a\nb", "sp ace", "\xC3\xBC"}) {
    EXPECT_THROW(store.put(bad, {}), std::invalid_argument) << bad;
    EXPECT_THROW(store.get(bad), std::invalid_argument) << bad;
    EXPECT_THROW(store.put("key", {{bad, {}}}), std::invalid_argument) << bad;
  }
  EXPECT_THROW(store.put(std::string("a\0b", 3), {}), std::invalid_argument);
  EXPECT_THROW(store.put(std::string(129, 'a'), {}), std::invalid_argument);
  EXPECT_THAT(names_in(folder), IsEmpty());
  EXPECT_THAT(names_in(above), ElementsAre("store"));
}

TEST_F(StoreTest, JobsWithOtherSettingsHaveOtherEntries) {  // C189
  Store one(folder), other(folder);
  one.put("settings-1", views(files_of('a')));
  EXPECT_EQ(other.get("settings-2"), std::nullopt);
  other.put("settings-2", views(files_of('b')));
  EXPECT_EQ(one.get("settings-1"), files_of('a'));
  // Not even where somebody moves one to the place of the other.
  fs::remove_all(folder / "settings-2");
  fs::rename(folder / "settings-1", folder / "settings-2");
  EXPECT_EQ(other.get("settings-2"), std::nullopt);
}

/// What a dead writer, a full disk or another program can leave of an entry.
struct Damage {
  const char* name;
  std::function<void(const fs::path& entry)> apply;
  const char* reason;
};

void PrintTo(const Damage& damage, std::ostream* out) {
  *out << damage.name;
}

class DamagedEntry : public StoreTest, public ::testing::WithParamInterface<Damage> {};

TEST_P(DamagedEntry, IsAMissIsRemovedAndCanBePutAgain) {  // C188, C191
  Store store(folder);
  GetParam().apply(store.put("key", views(files_of('a'))));
  EXPECT_EQ(store.get("key"), std::nullopt);
  EXPECT_THAT(log, ElementsAre(AllOf(HasSubstr((folder / "key").string()), HasSubstr(GetParam().reason))));
  EXPECT_THAT(names_in(folder), IsEmpty());
  store.put("key", views(files_of('a')));
  EXPECT_EQ(store.get("key"), files_of('a'));
}

TEST_P(DamagedEntry, IsReplacedByThePutOfTheSameFiles) {  // C188
  Store store(folder);
  GetParam().apply(store.put("key", views(files_of('a'))));
  store.put("key", views(files_of('a')));
  EXPECT_EQ(store.get("key"), files_of('a'));
  EXPECT_EQ(mode_of(folder / "key"), 0700U);
  EXPECT_THAT(log, IsEmpty());
  EXPECT_THAT(names_in(folder), ElementsAre("key"));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, DamagedEntry,
    ::testing::Values(Damage{"cut", [](const fs::path& entry) { fs::resize_file(entry / "kernel.so", 4096); }, "sha256"},
                      Damage{"longer", [](const fs::path& entry) { fs::resize_file(entry / "kernel.so", 100001); }, "sha256"},
                      Damage{
                          "overwritten",
                          [](const fs::path& entry) {
                            std::fstream(entry / "kernel.so", std::ios::in | std::ios::out | std::ios::binary).seekp(5000).put('b');
                          },
                          "sha256"},
                      Damage{"lost", [](const fs::path& entry) { fs::remove(entry / "empty"); }, "sha256"},
                      Damage{"added", [](const fs::path& entry) { std::ofstream(entry / "more").put('x'); }, "sha256"},
                      Damage{"unsealed", [](const fs::path& entry) { fs::remove(entry / ".sha256"); }, "no digest"},
                      Damage{"emptied",
                             [](const fs::path& entry) {
                               for (const std::string& name : names_in(entry)) fs::remove(entry / name);
                             },
                             "no digest"},
                      Damage{"link",
                             [](const fs::path& entry) {
                               fs::rename(entry / "kernel.so", entry.parent_path().parent_path() / "elsewhere");
                               fs::create_symlink(entry.parent_path().parent_path() / "elsewhere", entry / "kernel.so");
                             },
                             "'kernel.so' is no regular file"},
                      Damage{"pipe",
                             [](const fs::path& entry) {
                               fs::remove(entry / "kernel.so");
                               ASSERT_EQ(::mkfifo((entry / "kernel.so").c_str(), 0600), 0);
                             },
                             "'kernel.so' is no regular file"},
                      Damage{"file_for_all", [](const fs::path& entry) { ::chmod((entry / "kernel.so").c_str(), 0666); },
                             "'kernel.so' may be written by others (mode 666)"},
                      Damage{"folder_for_all", [](const fs::path& entry) { ::chmod(entry.c_str(), 0777); },
                             "its folder may be written by others (mode 777)"},
                      Damage{"a_file",
                             [](const fs::path& entry) {
                               fs::remove_all(entry);
                               std::ofstream(entry).put('x');
                             },
                             "it is no folder"},
                      Damage{"linked_folder",
                             [](const fs::path& entry) {
                               fs::rename(entry, entry.parent_path().parent_path() / "elsewhere");
                               fs::create_directory_symlink(entry.parent_path().parent_path() / "elsewhere", entry);
                             },
                             "it is no folder"}),
    [](const auto& info) { return info.param.name; });

TEST_F(StoreTest, WhatWasReadIsWhatIsUsedThoughTheFileChanges) {  // C192
  Store store(folder);
  const fs::path entry = store.put("key", views(files_of('a')));
  const std::optional<Files> files = store.get("key");
  std::fstream(entry / "kernel.so", std::ios::in | std::ios::out | std::ios::binary).seekp(0).put('b');
  EXPECT_EQ(files, files_of('a'));
}

TEST_F(StoreTest, AFolderThatOthersCanWriteIsNotUsed) {  // C191
  Store store(folder);
  store.put("key", views(files_of('a')));
  for (const mode_t mode : {0770, 0702, 01777}) {
    ASSERT_EQ(::chmod(folder.c_str(), mode), 0);
    EXPECT_THAT(message([&] { Store again(folder); }), AllOf(HasSubstr(folder.string()), HasSubstr("may be written by others")));
    EXPECT_THAT(message([&] { store.get("key"); }), HasSubstr("PRECAST_STORE"));
    EXPECT_THAT(message([&] { store.put("key", {}); }), HasSubstr("may be written by others"));
  }
}

TEST_F(StoreTest, ALinkOrAFileInItsPlaceIsNotUsed) {  // C191
  fs::create_directory(above / "real");
  fs::create_directory_symlink(above / "real", folder);
  EXPECT_THAT(message([&] { Store store(folder); }), HasSubstr("is a symbolic link"));
  EXPECT_THAT(message([&] { Store store(folder / ""); }), HasSubstr("is a symbolic link"));
  fs::remove(folder);
  std::ofstream(folder).put('x');
  EXPECT_THAT(message([&] { Store store(folder); }), HasSubstr("is no folder"));
  EXPECT_THAT(message([&] { Store store(folder / "below"); }), HasSubstr("Not a directory"));
}

TEST_F(StoreTest, AFolderOrEntryOfAnotherUserIsNotUsed) {  // C191
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  Store store(folder);
  const fs::path entry = store.put("key", views(files_of('a')));
  ASSERT_EQ(::chown((entry / "kernel.so").c_str(), 1234, 0), 0);
  EXPECT_EQ(store.get("key"), std::nullopt);
  EXPECT_THAT(log, ElementsAre(HasSubstr("'kernel.so' belongs to user 1234, not to 0")));
  ASSERT_EQ(::chown(folder.c_str(), 1234, 0), 0);
  EXPECT_THAT(message([&] { Store again(folder); }), HasSubstr("belongs to user 1234, not to 0"));
}

TEST_F(StoreTest, NoSpaceLeavesThePreviousEntryAndNoTemporaryFile) {  // C190
  Store(folder).put("key", views(files_of('a')));
  // A limit on the size of files stands for the full disk: the write ends half-way with an error.
  EXPECT_EQ(exit_code(start([&] {
              std::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit = {50000, 50000};
              ::setrlimit(RLIMIT_FSIZE, &limit);
              const std::string text = message([&] { Store(folder).put("key", views(files_of('b'))); });
              return text.find("kernel.so': File too large; PRECAST_STORE") != std::string::npos;
            })),
            0);
  EXPECT_EQ(Store(folder).get("key"), files_of('a'));
  EXPECT_THAT(names_in(folder), ElementsAre("key"));
}

TEST_F(StoreTest, ARemovedFolderIsAnErrorThatNamesIt) {  // C190
  Store store(folder);
  fs::remove_all(folder);
  EXPECT_THAT(message([&] { store.get("key"); }), AllOf(HasSubstr(folder.string()), HasSubstr("No such file")));
  EXPECT_THAT(message([&] { store.put("key", {}); }), HasSubstr("No such file"));
}

TEST_F(StoreTest, AReadOnlyFolderStillGivesItsEntries) {  // C190
  Store(folder).put("key", views(files_of('a')));
  const auto as_reader = [&] {
    if (::geteuid() == 0) {  // root may write anywhere
      constexpr uid_t kUser = 1234;
      for (const auto& path : fs::recursive_directory_iterator(above)) ::lchown(path.path().c_str(), kUser, 0);
      if (::chown(above.c_str(), kUser, 0) != 0 || ::seteuid(kUser) != 0) return false;
    }
    ::chmod(folder.c_str(), 0500);
    Store store(folder);
    const bool read = store.get("key") == files_of('a');
    const std::string text = message([&] { store.put("other", views(files_of('b'))); });
    return read && text.find("Permission denied") != std::string::npos;
  };
  EXPECT_EQ(exit_code(start(as_reader)), 0);
  ASSERT_EQ(::chmod(folder.c_str(), 0700), 0);
  EXPECT_THAT(names_in(folder), ElementsAre("key"));
}

TEST_F(StoreTest, FoldersOfDeadWritersAreRemovedAfterADay) {
  Store store(folder);
  store.put("key", views(files_of('a')));
  const fs::path old = folder / ".tmp-0123456789abcdef", young = folder / ".tmp-fedcba9876543210";
  for (const fs::path& path : {old, young}) {
    fs::create_directory(path);
    std::ofstream(path / "kernel.so").put('x');
  }
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(old, now - std::chrono::hours(25));
  fs::last_write_time(young, now - std::chrono::hours(23));
  fs::last_write_time(folder / "key", now - std::chrono::hours(1000));
  EXPECT_EQ(Store(folder).get("key"), files_of('a'));
  EXPECT_THAT(names_in(folder), ElementsAre(young.filename().string(), "key"));
}

TEST_F(StoreTest, AWriterThatIsKilledAnywhereLeavesThePreviousEntryOrItsOwn) {  // C188
  Store(folder).put("key", views(files_of('a', 3000000)));
  for (int i = 0; i < 20; ++i) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = start([&]() -> bool {
      Store store(folder);
      ::close(ready[1]);
      while (true)
        for (const char fill : {'b', 'a'}) store.put("key", views(files_of(fill, 3000000)));
    });
    ::close(ready[1]);
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 0);  // it writes now
    ::close(ready[0]);
    ::usleep(static_cast<useconds_t>(i) * 700);  // not a handshake: any moment will do, and each turn takes another
    ::kill(child, SIGKILL);
    EXPECT_EQ(exit_code(child), -SIGKILL);
    const std::optional<Files> files = Store(folder).get("key");
    ASSERT_TRUE(files == files_of('a', 3000000) || files == files_of('b', 3000000));
  }
  EXPECT_THAT(log, IsEmpty());
}

/// Starts `n_writers` processes that call `write(store, turn)` `n_turns` times, and two that read all the while: what they get is a
/// miss, or is_whole says it is an entry. A reader that sees damage fails.
void write_and_read(const fs::path& folder, int n_writers, int n_turns,
                    const std::function<void(Store&, int writer, int turn)>& write,
                    const std::function<bool(const Files&)>& is_whole) {
  int writing[2];
  ASSERT_EQ(::pipe(writing), 0);
  std::vector<pid_t> children;
  for (int reader = 0; reader < 2; ++reader)
    children.push_back(start([&] {
      ::close(writing[1]);
      ::fcntl(writing[0], F_SETFL, O_NONBLOCK);
      set_log_sink([](LogLevel, std::string_view text) {
        std::fprintf(stderr, "reader: %s\n", std::string(text).c_str());
        ::_exit(3);
      });
      Store store(folder);
      char byte = 0;
      bool good = true;
      while (good && ::read(writing[0], &byte, 1) != 0) {  // 0: the last writer has ended
        const std::optional<Files> files = store.get("key");
        good = !files || is_whole(*files);
      }
      return good;
    }));
  for (int writer = 0; writer < n_writers; ++writer)
    children.push_back(start([&] {
      Store store(folder);
      for (int turn = 0; turn < n_turns; ++turn) write(store, writer, turn);
      return true;
    }));
  ::close(writing[0]);
  ::close(writing[1]);
  for (const pid_t child : children) EXPECT_EQ(exit_code(child), 0);
}

TEST_F(StoreTest, WritersOfOneEntryAndReadersNeverSeeHalfOfIt) {  // C187
  const Files files = files_of('a', 10000);
  // Now and then the entry goes, so that the writers do write.
  const auto write = [&](Store& store, int writer, int turn) {
    store.put("key", views(files));
    if (turn % 10 == writer) fs::rename(folder / "key", folder / (".tmp-" + std::to_string(writer) + "-" + std::to_string(turn)));
  };
  const auto tolerant = [&](Store& store, int writer, int turn) {
    try {
      write(store, writer, turn);
    } catch (const fs::filesystem_error&) {  // another one has taken it away
    }
  };
  write_and_read(folder, 4, 1000, tolerant, [&](const Files& found) { return found == files; });
}

TEST_F(StoreTest, WritersOfDifferentFilesUnderOneKeyAndReadersSeeOneOfThemWhole) {  // C187
  const std::vector<Files> all = {files_of('a', 10000), files_of('b', 10000), files_of('c', 10000)};
  const auto write = [&](Store& store, int writer, int turn) {
    store.put("key", views(all[static_cast<std::size_t>(writer + turn) % all.size()]));
  };
  write_and_read(folder, 3, 200, write, [&](const Files& found) { return std::find(all.begin(), all.end(), found) != all.end(); });
  EXPECT_THAT(names_in(folder), ElementsAre("key"));
}

TEST_F(StoreTest, ACacheWithoutAUsableStoreWarnsOnceAndMisses) {  // C190
  std::ofstream(folder).put('x');
  Cache cache(folder);
  EXPECT_FALSE(cache.usable());
  cache.put("key", views(files_of('a')));
  EXPECT_EQ(cache.get("key"), std::nullopt);
  EXPECT_THAT(log, ElementsAre(AllOf(HasSubstr("goes on without the store"), HasSubstr("is no folder"))));
}

TEST_F(StoreTest, ACacheWhoseStoreFailsLaterWarnsOnceAndMisses) {  // C190
  Cache cache(folder);
  cache.put("key", views(files_of('a')));
  EXPECT_EQ(cache.get("key"), files_of('a'));
  fs::remove_all(folder);
  EXPECT_EQ(cache.get("key"), std::nullopt);
  cache.put("key", views(files_of('a')));
  EXPECT_EQ(cache.get("key"), std::nullopt);
  EXPECT_THAT(log, ElementsAre(HasSubstr("No such file")));
}

class DefaultFolder : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const auto& [name, value] : before_) value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
  }
  void set(const char* name, const char* value) {
    const char* old = std::getenv(name);
    before_.emplace(name, old != nullptr ? std::optional<std::string>(old) : std::nullopt);
    value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
  }

 private:
  std::map<const char*, std::optional<std::string>> before_;
};

TEST_F(DefaultFolder, TakesTheFirstOfThreeVariables) {
  set("PRECAST_STORE", "/fast/store");
  set("XDG_CACHE_HOME", "/cache");
  set("HOME", "/home/me");
  EXPECT_EQ(default_folder(), "/fast/store");
  set("PRECAST_STORE", "");
  EXPECT_EQ(default_folder(), "/cache/precast/store");
  set("XDG_CACHE_HOME", "relative");
  EXPECT_EQ(default_folder(), "/home/me/.cache/precast/store");
}

TEST_F(DefaultFolder, WithoutAnyOfThemSaysWhichToSet) {
  for (const char* name : {"PRECAST_STORE", "XDG_CACHE_HOME", "HOME"}) set(name, nullptr);
  EXPECT_THAT(message([] { default_folder(); }), AllOf(HasSubstr("PRECAST_STORE"), HasSubstr("HOME")));
}

}  // namespace
}  // namespace precast::store
