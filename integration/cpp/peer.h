// Declarations shared by the files of the Arrow C++ peer. Its functions are
// called from Python, by ctypes: each answers NULL, or the text of an error
// that the caller ends with cpp_free.
#pragma once

#include <arrow/c/abi.h>
#include <arrow/status.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace peer {

// How long a call waits for the other side, in seconds. A test whose other side
// never comes fails with an error then, and does not hang.
constexpr double kPatience = 30;

// Live objects: none of a test's remain at its end.
struct Alive {
  std::atomic<int64_t> sources, readers, consumers, producers, device_bytes;
};
extern Alive alive;

// Counters since the library was loaded.
struct Counters {
  std::atomic<int64_t> sources_closed, device_mappings;
};
extern Counters counters;

// Counts one of the things in Alive for as long as it exists.
class Counted {
 public:
  explicit Counted(std::atomic<int64_t>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int64_t>& count_;
};

// A C string that the caller owns.
char* Text(const std::string& text);

// NULL for OK; else four lines: the name of the status code, the code and the
// metadata (in hexadecimal) that an asynchronous producer gave, the message.
char* Answer(const arrow::Status& status);

// A failure of a status code that a test names; code is an arrow::StatusCode.
struct Failure {
  int64_t after;  // how many batches come first; below 0: no failure
  int32_t code;
  const char* message;
};

}  // namespace peer
