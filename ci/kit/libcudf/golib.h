/* The functions of the Go library that the program calls; see golib/main.go for what they do. */
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "consumer.h"

namespace kit {

/* An error of the Go library. */
class GoError : public std::exception {
 public:
  explicit GoError(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

class Golib {
 public:
  explicit Golib(const char* path);

  std::vector<std::string> jobs();
  /* Returns why ForCuDF refuses the array, or "". */
  std::string make(const std::string& job, Structs& out, uint64_t& exchange);
  void schema(uint64_t exchange, ArrowSchema& out);
  void open_after(uint64_t exchange, int64_t microseconds);
  bool is_held(uint64_t exchange);
  /* Returns the difference, or ""; changed gets the change of the type, or "". */
  std::string compare(uint64_t exchange, Structs&& structs, std::string& changed);
  void end(uint64_t exchange);
  void make_raw(const std::string& job, Structs& out);
  /* blocks gets the count of blocks of C memory, of which a schema is one. */
  std::string live(int64_t& blocks);

 private:
  template <typename F>
  void find(F& function, const char* name);
  void check(char* error);
  std::string take(char* text);

  void* library_;
  void (*free_)(char*);
  char* (*jobs_)(char**);
  char* (*make_)(const char*, uintptr_t, uintptr_t, uint64_t*, char**);
  char* (*schema_)(uint64_t, uintptr_t);
  char* (*open_after_)(uint64_t, int64_t);
  char* (*is_held_)(uint64_t, int*);
  char* (*compare_)(uint64_t, uintptr_t, uintptr_t, char**, char**);
  char* (*end_)(uint64_t);
  char* (*make_raw_)(const char*, uintptr_t, uintptr_t);
  char* (*live_)(char**, int64_t*);
};

}  // namespace kit
