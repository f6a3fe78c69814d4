/* The passes of the program. */
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "golib.h"

namespace kit {

constexpr int kNoGPU = 3, kGPULost = 4;  // exit statuses
constexpr int64_t kDelay = 1000;         // microseconds for which the work that fills an array is held back

enum class Verdict { kEqual, kRefused, kFailed };

struct Outcome {
  Verdict verdict = Verdict::kFailed;
  std::string text;     // the refusal, or what failed
  std::string changed;  // the type that the consumer made of another
};

bool is_table(const std::string& job);

/* The first part of the name of a job. */
std::string case_of(const std::string& job);

class Program {
 public:
  Program(Driver& driver, Golib& golib, Consumer& consumer, std::string kind)
      : driver_(driver), golib_(golib), consumer_(consumer), kind_(std::move(kind)) {}

  int run(const std::string& pass, const std::string& after);

 private:
  Outcome exchange(const std::string& job, Stream stream);
  Outcome consume(const std::string& job, uint64_t exchange, Structs&& structs, Stream stream);
  Outcome give_back(Imported& imported, uint64_t exchange, bool device, Stream stream);
  void cases(const std::string& after);
  void row();
  void threads();
  void unwaited();
  void structure();
  void types();
  bool refuses(const std::string& job);
  void releases(const std::string& before, int64_t blocks);
  void ok(const std::string& name, const std::string& text);
  void fail(const std::string& name, const std::string& text);
  void progress(const std::string& job);

  Driver& driver_;
  Golib& golib_;
  Consumer& consumer_;
  std::string kind_;
  std::mutex mutex_;
  int failures_ = 0, repeated_ = 0, lost_ = 0;
  std::map<std::string, int> reasons_;  // of failures, and how often
  std::atomic<int> attempts_{0}, imports_{0}, pending_{0};
};

}  // namespace kit
